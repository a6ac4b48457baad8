"""All rows."""

from e2e.faults import answers, apiserver, kubevirt, metrics, nodes, requests, surroundings, watches

ROWS = (
    *watches.ROWS,
    *requests.ROWS,
    *answers.ROWS,
    *apiserver.ROWS,
    *kubevirt.ROWS,
    *nodes.ROWS,
    *metrics.ROWS,
    *surroundings.ROWS,
)
