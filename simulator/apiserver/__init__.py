"""The simulated cluster in real time, behind the real Kubernetes HTTP API.

Rooms, from the bottom up: `resources` (what is served), `refusals` (Status bodies), `selectors`, `history` (changes by
resourceVersion), `listing`, `watches`, `forms` (objects, tables, partial objects), `patches`, `writes`, `subresources`,
`discovery`, `accounts` and `rbac` (who may), `audit`, `faults` (what goes wrong on purpose), `api` (one request),
`live` (the cluster and its time), `server` (HTTP), `control` (the endpoint that injects faults).

Everything but `server` and `control` is plain synchronous code on one thread, which owns agenda, world and store.
Shapes and messages are those of Kubernetes 1.36, from recordings of a real API server where there are any.
"""
