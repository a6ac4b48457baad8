"""Hot reload: what takes effect, and what never does."""

import os

import pytest

from controller.cluster.metadata import Identity
from controller.cluster.objects import decode
from controller.policy.model import Mode
from controller.policy.watch import ConfigMap, PolicyState, PolicyWatch
from informers.informer import Informer

HEAD = "apiVersion: vm-rebalancer.io/v1alpha1\nkind: RebalancePolicy\n"
AUTOMATIC = f"{HEAD}mode: Automatic\n"
FAULTY = f"{HEAD}mode: Sometimes\nevictions:\n  minGane: 0.1\n"


def config_map(version: str, **data: str) -> ConfigMap:
    identity = Identity(name="policy", namespace="rebalancing", uid="u", resource_version=version)
    return ConfigMap(metadata=identity, data={name.replace("_", "."): text for name, text in data.items()})


def watch_of(*config_maps: ConfigMap) -> tuple[Informer[ConfigMap], PolicyWatch]:
    informer: Informer[ConfigMap] = Informer("policy")
    informer.replace(config_maps)
    return informer, PolicyWatch.of_config_map(informer.lister, "rebalancing", "policy")


def test_there_is_no_policy_before_it_was_loaded(tmp_path):
    watch = PolicyWatch.of_file(str(tmp_path / "absent"))
    assert watch.current() is None
    assert not watch.state.valid


def test_a_good_policy_takes_effect():
    _, watch = watch_of(config_map("1", policy_yaml=AUTOMATIC))
    assert watch.reload() is True
    assert watch.current().mode is Mode.AUTOMATIC
    assert watch.state.valid


def test_another_policy_takes_the_place_of_the_last_one_without_a_restart():
    informer, watch = watch_of(config_map("1", policy_yaml=HEAD))
    watch.reload()
    informer.apply("MODIFIED", config_map("2", policy_yaml=AUTOMATIC))
    assert watch.reload() is True
    assert watch.current().mode is Mode.AUTOMATIC


def test_a_faulty_policy_leaves_the_last_good_one_in_force_and_names_every_fault():
    informer, watch = watch_of(config_map("1", policy_yaml=AUTOMATIC))
    watch.reload()
    good = watch.current()
    informer.apply("MODIFIED", config_map("2", policy_yaml=FAULTY))
    assert watch.reload() is False
    assert watch.current() is good
    assert [problem.path for problem in watch.state.problems] == ["mode", "evictions.minGane"]
    assert watch.state.problems[1].nearest == "minGain"
    assert not watch.state.valid


def test_a_faulty_policy_from_the_start_is_no_policy():
    _, watch = watch_of(config_map("1", policy_yaml=FAULTY))
    assert watch.reload() is False
    assert watch.current() is None
    assert watch.state.problems


@pytest.mark.parametrize(
    ("config_maps", "words"),
    [
        ([], "found nothing of that name"),
        ([config_map("1")], 'data."policy.yaml": found nothing'),
        ([config_map("1", policy_yml=HEAD)], "did you mean policy.yml?"),
        ([config_map("1", policy_yaml="")], "found an empty document"),
    ],
)
def test_a_config_map_that_is_missing_or_empty_from_the_start_is_said_so(config_maps, words):
    _, watch = watch_of(*config_maps)
    assert watch.reload() is False
    assert watch.current() is None
    (problem,) = watch.state.problems
    assert words in str(problem)


def test_a_config_map_that_is_deleted_leaves_the_last_good_policy_in_force():
    there = config_map("1", policy_yaml=AUTOMATIC)
    informer, watch = watch_of(there)
    watch.reload()
    informer.apply("DELETED", there)
    assert watch.reload() is False
    assert watch.current().mode is Mode.AUTOMATIC
    assert not watch.state.valid


def test_a_config_map_that_comes_back_is_valid_again():
    there = config_map("1", policy_yaml=AUTOMATIC)
    informer, watch = watch_of(there)
    watch.reload()
    good = watch.current()
    informer.apply("DELETED", there)
    watch.reload()
    informer.apply("ADDED", there)
    assert watch.reload() is False
    assert watch.current() is good
    assert watch.state.valid


def test_a_policy_that_means_the_same_is_no_other_one():
    """Handlers compare by identity, and a new policy would throw away what they know."""
    informer, watch = watch_of(config_map("1", policy_yaml=AUTOMATIC))
    watch.reload()
    before = watch.current()
    informer.apply("MODIFIED", config_map("2", policy_yaml=f"# a remark\n{AUTOMATIC}"))
    assert watch.reload() is False
    assert watch.current() is before


def test_tells_of_changes_of_state_and_of_nothing_else():
    informer, watch = watch_of(config_map("1", policy_yaml=AUTOMATIC))
    states: list[PolicyState] = []
    watch.subscribe(states.append)
    watch.reload()
    watch.reload()
    informer.apply("MODIFIED", config_map("2", policy_yaml=FAULTY))
    watch.reload()
    informer.apply("MODIFIED", config_map("3", policy_yaml=f"{FAULTY}# again\n"))
    watch.reload()
    informer.apply("MODIFIED", config_map("4", policy_yaml=AUTOMATIC))
    watch.reload()
    assert [(state.policy.mode, state.valid) for state in states] == [
        (Mode.AUTOMATIC, True),
        (Mode.AUTOMATIC, False),
        (Mode.AUTOMATIC, True),
    ]


def test_logs_where_each_fault_is(caplog):
    _, watch = watch_of(config_map("1", policy_yaml=FAULTY))
    watch.reload()
    assert 'ConfigMap rebalancing/policy:3: mode: found "Sometimes"' in caplog.text
    assert "ConfigMap rebalancing/policy:5: evictions.minGane" in caplog.text


def test_decodes_a_config_map_from_the_api():
    body = b'{"kind":"ConfigMap","metadata":{"name":"p","resourceVersion":"7"},"data":null,"binaryData":{}}'
    found = decode(body, ConfigMap)
    assert found.data == {}
    assert found.metadata.resource_version == "7"


def test_follows_a_mounted_config_map_whose_links_are_swapped(tmp_path):
    for name, text in (("..1", HEAD), ("..2", AUTOMATIC)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "policy.yaml").write_text(text)
    (tmp_path / "..data").symlink_to("..1")
    (tmp_path / "policy.yaml").symlink_to("..data/policy.yaml")
    watch = PolicyWatch.of_file(str(tmp_path / "policy.yaml"))
    assert watch.reload() is True
    (tmp_path / "..new").symlink_to("..2")
    os.replace(tmp_path / "..new", tmp_path / "..data")
    assert watch.reload() is True
    assert watch.current().mode is Mode.AUTOMATIC


def test_reads_a_file_again_even_if_its_time_and_size_stay(tmp_path):
    path = tmp_path / "policy.yaml"
    path.write_text(f"{HEAD}thresholds: {{sustain: 2}}\n")
    watch = PolicyWatch.of_file(str(path))
    watch.reload()
    times = path.stat()
    path.write_text(f"{HEAD}thresholds: {{sustain: 3}}\n")
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert watch.reload() is True
    assert watch.current().thresholds.sustain == 3


def test_a_file_may_be_a_config_map_manifest(tmp_path):
    path = tmp_path / "policy.yaml"
    indented = AUTOMATIC.replace("\n", "\n    ")
    path.write_text(f"kind: ConfigMap\nmetadata:\n  name: p\ndata:\n  policy.yaml: |\n    {indented}\n")
    watch = PolicyWatch.of_file(str(path))
    assert watch.reload() is True


def test_a_file_that_cannot_be_read_says_why(tmp_path):
    path = tmp_path / "policy.yaml"
    watch = PolicyWatch.of_file(str(path))

    def problem() -> str:
        assert watch.reload() is False
        (found,) = watch.state.problems
        return str(found)

    assert (
        problem()
        == "found no readable file (No such file or directory); allowed: a regular file with a policy"
    )
    path.mkdir()
    assert problem() == "found no readable file (Is a directory); allowed: a regular file with a policy"
    path.rmdir()
    path.write_bytes(b"kind: \xff")
    assert problem() == "found bytes that are no UTF-8, at 6; allowed: UTF-8 text"
    path.write_bytes(b"#" * 1_100_000)
    assert problem() == "found more than 262144 characters; allowed: a shorter text"
    path.unlink()
    os.mkfifo(path)
    assert problem() == "found no regular file; allowed: a regular file with a policy"


def test_a_file_that_goes_away_leaves_the_last_good_policy_in_force(tmp_path):
    path = tmp_path / "policy.yaml"
    path.write_text(AUTOMATIC)
    watch = PolicyWatch.of_file(str(path))
    watch.reload()
    path.unlink()
    assert watch.reload() is False
    assert watch.current().mode is Mode.AUTOMATIC
    assert not watch.state.valid
