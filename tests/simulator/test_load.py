"""What VMs want over time, and that it depends on nothing but scenario and seed."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simulator.build import Simulation, build
from simulator.load.times import at_hour, intervals, on_day, poisson_times
from simulator.scenario.checking import ScenarioErrors
from simulator.scenario.cluster_schema import When
from simulator.seeds import generator
from tests.simulator.scenario_builders import scenario

DAY = 86_400.0
HOUR = 3_600.0


def simulation(load: dict[str, Any], *, seed: int = 1, **changes: Any) -> Simulation:
    return build(scenario(load=load, **changes), seed)


def demands(simulation: Simulation) -> dict[str, float]:
    """VM -> fraction of its 4 vCPUs."""
    keys = simulation.world.layout().vm_keys
    return {key: simulation.world.vm_demand_cores(key) / 4 for key in keys}


def course(simulation: Simulation, *, step_s: float = 60, steps: int = 200) -> np.ndarray:
    """Demands over time: (steps, VMs)."""
    rows = []
    for _ in range(steps):
        simulation.agenda.run_until(simulation.agenda.now_s + step_s)
        rows.append(list(demands(simulation).values()))
    return np.array(rows)


class TestTimes:
    @pytest.mark.parametrize(
        ("when", "expected"),
        [
            (When(), [(0, 7200)]),
            (When(start_minute=10), [(600, 7200)]),
            (When(start_minute=10, for_minutes=5), [(600, 900)]),
            (When(start_minute=10, end_minute=20, for_minutes=15), [(600, 1200)]),
            (When(start_minute=200), []),
            (When(every_minutes=60), [(0, 3600), (3600, 7200)]),
            (When(every_minutes=60, for_minutes=1, start_minute=30), [(1800, 1860), (5400, 5460)]),
            (When(every_minutes=50, for_minutes=30, end_minute=60), [(0, 1800), (3000, 3600)]),
            (When(hours=(1, 1.5)), [(3600, 5400)]),
            (When(hours=(22, 1)), [(0, 3600)]),
            (When(hours=(1, 2), every_minutes=30, for_minutes=10), [(3600, 4200), (5400, 6000)]),
            (When(days=("Tue",)), []),
            (When(days=("Sun",), hours=(23, 1)), [(0, 3600)]),
        ],
    )
    def test_holds_in_the_asked_spans_of_the_run(
        self, when: When, expected: list[tuple[float, float]]
    ) -> None:
        assert intervals(when, 7200) == expected

    def test_days_are_those_on_which_a_window_begins(self) -> None:
        found = intervals(When(days=("Fri",), hours=(22, 6)), 7 * DAY)
        assert found == [(4 * DAY + 22 * HOUR, 5 * DAY + 6 * HOUR)]

    def test_a_curve_is_linear_between_its_hours_and_over_midnight(self) -> None:
        curve = {6.0: 0.2, 18.0: 0.8}
        assert at_hour(curve, 12 * HOUR) == pytest.approx(0.5)
        assert at_hour(curve, DAY) == pytest.approx(0.5)
        assert at_hour(curve, 3 * DAY + 21 * HOUR) == pytest.approx(0.65)
        assert at_hour({3.0: 0.4}, 17 * HOUR) == 0.4

    def test_the_run_begins_on_a_monday(self) -> None:
        assert on_day(("Mon",), 0.0)
        assert on_day(("Sun",), 7 * DAY - 1)
        assert not on_day(("Sun",), 7 * DAY)
        assert on_day((), 0.0)

    def test_random_times_come_as_often_as_asked(self) -> None:
        times = poisson_times(generator(1, "test"), 4, 600, 60_600)
        assert len(times) == pytest.approx(4000, rel=0.05)
        assert times == sorted(times)
        assert 600 <= times[0] <= times[-1] < 60_600


class TestLevels:
    def test_everybody_has_the_base_and_some_a_level_of_their_own(self) -> None:
        two = {"count": 2, "vcpus": 4, "memory_gib": 8}
        found = demands(
            simulation(
                {"demand": 0.2, "constant": [{"vms": {"groups": ["web"]}, "demand": 0.5}]},
                vms={"web": two, "db": two, "own": {**two, "count": 1, "demand": 0.7}},
            )
        )
        assert found == {
            "vms/web-000": 0.5,
            "vms/web-001": 0.5,
            "vms/db-000": 0.2,
            "vms/db-001": 0.2,
            "vms/own-000": 0.7,
        }

    def test_a_hot_spot_holds_for_its_time_and_for_the_vms_that_started_there(self) -> None:
        built = simulation(
            {
                "hotspots": [
                    {"vms": {"nodes": ["node-01"]}, "start_minute": 10, "for_minutes": 5, "demand": 0.9}
                ]
            }
        )
        there = {key for key in demands(built) if built.world.node_of(key) == "node-01"}
        for time_s, hot in ((599, set()), (600, there), (899, there), (900, set[str]())):
            built.agenda.run_until(time_s)
            assert {key for key, level in demands(built).items() if level == 0.9} == hot

    def test_a_factor_multiplies_and_never_exceeds_the_vcpus(self) -> None:
        load = {"demand": 0.3, "hotspots": [{"factor": 2}, {"factor": 3, "vms": {"nodes": ["node-00"]}}]}
        assert sorted(demands(simulation(load)).values()) == pytest.approx([0.6, 0.6, 0.6, 0.6, 1, 1])

    def test_a_hot_spot_never_cools(self) -> None:
        load = {"demand": 0.3, "hotspots": [{"demand": 0.8}, {"demand": 0.5}]}
        assert set(demands(simulation(load)).values()) == {0.8}

    def test_load_goes_along_when_a_vm_moves(self) -> None:
        built = simulation({"hotspots": [{"vms": {"nodes": ["node-00"]}, "demand": 0.9, "for_minutes": 30}]})
        hot = next(key for key, level in demands(built).items() if level == 0.9)
        built.agenda.run_until(60)
        built.world.move_vm(hot, "node-02")
        built.agenda.run_until(1799)
        assert built.world.vm_demand_cores(hot) == pytest.approx(3.6)
        built.agenda.run_until(1800)
        assert built.world.vm_demand_cores(hot) == pytest.approx(0.4)

    def test_a_batch_touches_memory_and_gives_it_back(self) -> None:
        built = simulation({"touched": 0.5, "hotspots": [{"hours": [1, 2], "touched": 1}]}, minutes=180)
        key = built.world.layout().vm_keys[0]
        gib = []
        for hour in (0.5, 1.5, 2.5):
            built.agenda.run_until(hour * HOUR)
            gib.append(built.world.vm_touched_bytes(key) / 2**30)
        assert gib == [4, 8, 4]

    def test_a_daily_curve_is_followed_on_its_days(self) -> None:
        load = {"demand": 0.1, "daily": [{"days": ["Mon"], "demand": {0: 0.2, 12: 0.8}}], "tick_seconds": 60}
        built = simulation(load, minutes=2880)
        levels = []
        for hour in (0, 6, 12, 18, 30):
            built.agenda.run_until(hour * HOUR)
            levels.append(max(demands(built).values()))
        assert levels == pytest.approx([0.2, 0.5, 0.8, 0.5, 0.1])

    def test_single_vms_spike(self) -> None:
        load = {"demand": 0.1, "spikes": [{"per_minute": 0.5, "for_minutes": 1, "demand": 0.9}]}
        levels = course(simulation(load, minutes=400), step_s=30, steps=800)
        assert set(np.round(np.unique(levels), 3)) == {0.1, 0.9}
        # 0.5 a minute for a minute each: half a VM on average.
        assert (levels > 0.5).sum(axis=1).mean() == pytest.approx(0.5, abs=0.1)


class TestChase:
    CROWDED = {"vm": {"count": 6, "vcpus": 4, "memory_gib": 8, "placement": {"node-01": 3, "node-02": 2}}}  # noqa: RUF012

    def hot_nodes(self, built: Simulation) -> set[str]:
        return {built.world.node_of(key) for key, level in demands(built).items() if level > 0.5}

    def test_hits_the_node_that_is_hottest_at_that_moment(self) -> None:
        load = {
            "hotspots": [
                {"vms": {"nodes": {"hottest": 1}}, "every_minutes": 5, "for_minutes": 3, "demand": 0.9}
            ]
        }
        built = simulation(load, vms=self.CROWDED)
        assert self.hot_nodes(built) == {"node-01"}
        built.agenda.run_until(240)
        on_first = [key for key in demands(built) if built.world.node_of(key) == "node-01"]
        for key in on_first[:2]:
            built.world.move_vm(key, "node-02")
        built.agenda.run_until(301)
        assert self.hot_nodes(built) == {"node-02"}

    def test_does_not_see_its_own_last_burst(self) -> None:
        load = {"hotspots": [{"vms": {"nodes": {"hottest": 1}}, "every_minutes": 5, "demand": 0.9}]}
        built = simulation(load, vms=self.CROWDED)
        built.agenda.run_until(240)
        for key in [key for key in demands(built) if built.world.node_of(key) == "node-01"]:
            built.world.move_vm(key, "node-00")
        # The burst's three VMs make node-00 the hottest by far, but without them it still has the most VMs.
        built.agenda.run_until(301)
        assert self.hot_nodes(built) == {"node-00"}
        for key in [key for key in demands(built) if built.world.node_of(key) == "node-00"][:3]:
            built.world.move_vm(key, "node-01")
        built.agenda.run_until(601)
        assert self.hot_nodes(built) == {"node-01"}

    def test_the_fullest_node_is_the_one_with_most_memory_in_use(self) -> None:
        fat = {"count": 1, "vcpus": 4, "memory_gib": 64, "placement": ["node-02"]}
        load = {"hotspots": [{"vms": {"nodes": {"fullest": 1}}, "demand": 0.9}]}
        assert self.hot_nodes(simulation(load, vms={**self.CROWDED, "fat": fat})) == {"node-02"}

    def test_most_committed_means_the_same_vms_wherever_they_are_later(self) -> None:
        pick = {"nodes": {"most_committed_at_start": 1}}
        built = simulation({"hotspots": [{"vms": pick, "start_minute": 10, "demand": 0.9}]}, vms=self.CROWDED)
        first = [key for key in demands(built) if built.world.node_of(key) == "node-01"]
        built.world.move_vm(first[0], "node-00")
        built.agenda.run_until(600)
        assert [key for key, level in demands(built).items() if level == 0.9] == first

    def test_a_random_node_is_another_one_now_and_then(self) -> None:
        load = {"hotspots": [{"vms": {"nodes": {"random": 1}}, "every_minutes": 1, "demand": 0.9}]}
        built = simulation(load)
        seen = set()
        for minute in range(20):
            built.agenda.run_until(60.0 * minute)
            (node,) = self.hot_nodes(built)
            seen.add(node)
        assert seen == {"node-00", "node-01", "node-02"}

    def test_a_share_of_the_vms_is_drawn(self) -> None:
        load = {"hotspots": [{"vms": {"fraction": 0.5}, "demand": 0.9}]}
        assert sorted(demands(simulation(load)).values()) == [0.1, 0.1, 0.1, 0.9, 0.9, 0.9]


class TestNoise:
    def test_has_the_asked_spread_and_memory(self) -> None:
        load = {"demand": 0.5, "noise": [{"std": 0.05, "correlation_minutes": 5}]}
        vms = {"vm": {"count": 60, "vcpus": 4, "memory_gib": 1}}
        levels = course(simulation(load, vms=vms, minutes=400)) - 0.5
        assert levels.mean() == pytest.approx(0, abs=0.005)
        assert levels.std() == pytest.approx(0.05, rel=0.1)
        for lag in (1, 5):
            correlation = np.corrcoef(levels[:-lag].ravel(), levels[lag:].ravel())[0, 1]
            assert correlation == pytest.approx(np.exp(-lag / 5), abs=0.05)

    def test_has_the_same_spread_whatever_the_step(self) -> None:
        load = {"demand": 0.5, "noise": [{"std": 0.05, "correlation_minutes": 5}], "tick_seconds": 60}
        vms = {"vm": {"count": 60, "vcpus": 4, "memory_gib": 1}}
        assert course(simulation(load, vms=vms, minutes=400)).std() == pytest.approx(0.05, rel=0.1)

    def test_vms_of_a_set_move_together(self) -> None:
        levels = course(simulation({"demand": 0.5, "noise": [{"std": 0.1, "sets": 2}]}, minutes=400))
        correlation = np.corrcoef(levels.T)
        assert correlation[0, 2] == pytest.approx(1)
        assert abs(correlation[0, 1]) < 0.5


class TestRepeatability:
    LOAD = {"demand": 0.4, "noise": [{"std": 0.1}], "spikes": [{"per_minute": 2}]}  # noqa: RUF012

    def test_the_same_seed_gives_the_same_course(self) -> None:
        first, again = (course(simulation(self.LOAD), steps=20) for _ in range(2))
        assert (first == again).all()
        assert (first != course(simulation(self.LOAD, seed=2), steps=20)).any()

    def test_another_load_changes_none_of_the_others_draws(self) -> None:
        quiet = {"vms": {"count": 1}, "std": 0.0}
        with_noise = course(simulation({**self.LOAD, "noise": [{"std": 0.1}, quiet]}), steps=20)
        assert (with_noise == course(simulation(self.LOAD), steps=20)).all()

    def test_it_does_not_matter_where_vms_run(self) -> None:
        stayed, moved = simulation(self.LOAD), simulation(self.LOAD)
        for minute, key in enumerate(moved.world.layout().vm_keys):
            moved.agenda.run_until(60.0 * minute)
            moved.world.move_vm(key, "node-02")
        for built in (stayed, moved):
            built.agenda.run_until(1200)
        assert demands(stayed) == demands(moved)


class TestWrites:
    def test_only_vms_whose_level_changes_are_set(self, monkeypatch: pytest.MonkeyPatch) -> None:
        built = simulation(
            {"hotspots": [{"vms": {"groups": ["vm"], "count": 2}, "start_minute": 10, "demand": 0.9}]}
        )
        writes: list[int] = []
        set_demands_at = built.world.set_demands_at

        def count(slots: Any, fractions: Any) -> None:
            writes.append(len(slots))
            set_demands_at(slots, fractions)

        monkeypatch.setattr(built.world, "set_demands_at", count)
        built.agenda.run_until(3600)
        assert writes == [2]

    def test_a_vm_that_comes_back_gets_its_load_again(self) -> None:
        built = simulation({"hotspots": [{"vms": {"nodes": ["node-00"]}, "start_minute": 10, "demand": 0.9}]})
        hot = next(key for key in demands(built) if built.world.node_of(key) == "node-00")
        built.agenda.run_until(700)
        namespace, name = hot.split("/")
        built.control_plane.stop_vm(namespace, name)
        built.agenda.run_until(760)
        assert hot not in demands(built)
        built.control_plane.start_vm(namespace, name)
        built.agenda.run_until(1000)
        assert demands(built)[hot] == pytest.approx(0.9)


class TestReplay:
    def write(
        self, folder: Path, rows: str, header: str = "time,vm,cpu_cores,memory_bytes"
    ) -> dict[str, Any]:
        (folder / "series.csv").write_text(f"{header}\n{rows}")
        return {"replay": {"file": str(folder / "series.csv")}}

    def test_vms_do_what_the_file_says_and_keep_at_it(self, tmp_path: Path) -> None:
        rows = (
            f"60,vms/vm-000,2,{2 * 2**30}\n0,vms/vm-000,1,\n60,vms/vm-001,9,\n120,vms/vm-000,,{4 * 2**30}\n"
        )
        built = simulation(self.write(tmp_path, rows))
        found = []
        for time_s in (0, 59, 60, 120, 3000):
            built.agenda.run_until(time_s)
            both = [built.world.vm_demand_cores(f"vms/vm-00{n}") for n in (0, 1)]
            found.append((*both, round(built.world.vm_touched_bytes("vms/vm-000") / 2**30, 3)))
        assert found == [(1, 0.4, 5.2), (1, 0.4, 5.2), (2, 4, 2), (2, 4, 4), (2, 4, 4)]

    def test_instants_count_from_the_earliest(self, tmp_path: Path) -> None:
        rows = "2026-03-01T10:01:00Z,vms/vm-000,2,\n2026-03-01T10:00:00Z,vms/vm-000,1,\n"
        built = simulation(self.write(tmp_path, rows))
        built.agenda.run_until(59)
        assert built.world.vm_demand_cores("vms/vm-000") == 1
        built.agenda.run_until(60)
        assert built.world.vm_demand_cores("vms/vm-000") == 2

    @pytest.mark.parametrize(
        ("rows", "expected"),
        [
            ("", "series.csv: load.replay: no rows"),
            ("0,vms/vm-9,1,1\n", "series.csv row 2: load.replay: no VM 'vms/vm-9'; allowed: vms/vm-000, "),
            ("0,vms/vm-000,many,1\n", "series.csv row 2: cpu_cores: 'many'; allowed: a number"),
            ("0,vms/vm-000,1,1\n0,vms/vm-000,1,-1\n", "series.csv row 3: memory_bytes: '-1'"),
            ("0,vms/vm-000,nan,1\n", "series.csv row 2: cpu_cores: 'nan'"),
            ("soon,vms/vm-000,1,1\n", "series.csv: load.replay: time: Invalid isoformat string: 'soon'"),
            ("-1,vms/vm-000,1,1\n", "series.csv: load.replay: time: negative"),
            ("0,vms/vm-000\n", "series.csv: load.replay: row 2 has too many or too few columns"),
        ],
    )
    def test_a_bad_file_is_told_with_its_row(self, tmp_path: Path, rows: str, expected: str) -> None:
        with pytest.raises(ScenarioErrors) as caught:
            simulation(self.write(tmp_path, rows))
        assert expected in str(caught.value)
        assert "\n" not in str(caught.value)

    def test_missing_columns_and_files_are_named(self, tmp_path: Path) -> None:
        with pytest.raises(
            ScenarioErrors, match="no column cpu_cores, memory_bytes; allowed: the columns time, vm"
        ):
            simulation(self.write(tmp_path, "", header="time,vm,cpu"))
        with pytest.raises(ScenarioErrors, match=r"none\.csv: load\.replay: No such file"):
            simulation({"replay": {"file": str(tmp_path / "none.csv")}})

    def test_parquet_without_pyarrow_says_what_to_do(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def missing(name: str) -> None:
            raise ImportError(name)

        monkeypatch.setattr("simulator.load.replay.importlib.import_module", missing)
        with pytest.raises(
            ScenarioErrors, match="needs pyarrow, which is not installed; allowed: a CSV file"
        ):
            simulation({"replay": {"file": "series.parquet"}})
