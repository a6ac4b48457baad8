"""The whole story of one VM. Pure."""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from controller.cluster.objects import Pod, Vmi, Vmim
from controller.cluster.placement import Placement
from controller.cluster.queries import Reason, effective_eviction_strategy, why_not_movable
from controller.evictions.gate import why_closed
from controller.evictions.rebuild import finished_record
from controller.evictions.select import REFUSAL, RULES, Candidate, Choice, Ground, select, weigh, why_not
from controller.plan.look import Look
from controller.plan.make import expected_move, head_of
from controller.plan.sources import LookError
from controller.policy.problems import nearest_name
from controller.report import Load, Misfits, PastMigration, RuleVerdict, ScoredNode, VmStory
from controller.reporting import class_of, on_the_move, rounded
from controller.utilization.classify import NodeClass

_WANTED = re.compile(r"vmi?/(?:([^/\s]+)/)?([^/\s]+)")


def find_vm(look: Look, wanted: str) -> Vmi:
    """``vm/NAME`` or ``vm/NAMESPACE/NAME``. Raises LookError."""
    match = _WANTED.fullmatch(wanted)
    if match is None:
        raise LookError(f"--explain: found {wanted!r}; allowed: vm/NAME or vm/NAMESPACE/NAME")
    namespace, name = match.groups()
    every = look.view.all_vmis()
    found = [v for v in every if v.name == name and namespace in (None, v.namespace)]
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(sorted(f"vm/{v.namespace}/{v.name}" for v in found))
        raise LookError(f"--explain: {len(found)} VMs are called {name}: {names}")
    nearest = nearest_name(name, (v.name for v in every if namespace in (None, v.namespace)))
    hint = f"; did you mean {nearest}?" if nearest else ""
    place = f" in namespace {namespace}" if namespace else ""
    raise LookError(f"--explain: no VMI is called {name}{place}{hint}")


def story(look: Look, wanted: str) -> VmStory:
    """Raises LookError if there is no such VM, or more than one."""
    case = _case(look, find_vm(look, wanted))
    vmi, pod, ground, candidate = case.vmi, case.pod, case.ground, case.candidate
    weighed = weigh(candidate, ground) if candidate is not None and ground is not None else None
    placement = ground.place(candidate.pod) if candidate is not None and ground is not None else None
    load = look.snapshot.vms.get((vmi.namespace, vmi.name))
    entries = [e for e in look.ledger.entries if e.vmi_uid == vmi.uid]
    evictions = look.policy.evictions
    return VmStory(
        head=head_of(look),
        vm=f"{vmi.namespace}/{vmi.name}",
        summary=_summary(case, weighed),
        node=vmi.node_name,
        phase=vmi.phase,
        pod=pod.metadata.name if pod is not None else "",
        priority=pod.priority if pod is not None else None,
        created_at=vmi.metadata.creation_timestamp,
        eviction_strategy=effective_eviction_strategy(vmi, look.view.kubevirt()),
        load=Load(cpu_cores=rounded(load.cpu_cores), memory_bytes=load.memory_bytes) if load else None,
        dirty_bytes_per_s=load.dirty_bytes_per_s if load else None,
        on_the_move=tuple(on_the_move(entries)),
        rules_of_node=tuple(_rules_of_node(case)),
        rules_of_vm=tuple(_rules_of_vm(case, weighed)),
        move=expected_move(look, weighed, ground)
        if isinstance(weighed, Choice) and ground is not None
        else None,
        fits_on=_fits_on(placement) if placement is not None else (),
        misfits=tuple(_misfits(placement)) if placement is not None else (),
        migrations=tuple(_migrations(look.view.migrations_of(vmi), vmi)),
        resting_until=look.ledger.cooling_until(vmi.uid, evictions.cooldown, look.at)
        or look.ledger.vm_resting_until(vmi.uid, evictions.breaker, look.at),
    )


@dataclass(frozen=True, slots=True)
class _Case:
    """``ground`` is ``None`` where the VMI is on no node, ``candidate`` where it has no launcher."""

    look: Look
    vmi: Vmi
    pod: Pod | None
    ground: Ground | None
    candidate: Candidate | None


def _case(look: Look, vmi: Vmi) -> _Case:
    ground = look.ground(vmi.node_name) if vmi.node_name else None
    candidates = ground.candidates if ground is not None else ()
    candidate = next((c for c in candidates if c.vmi.uid == vmi.uid), None)
    return _Case(look, vmi, look.view.launcher_of(vmi), ground, candidate)


def _summary(case: _Case, weighed: Choice | Reason | None) -> str:
    """The one thing that decides."""
    look, vmi, ground, candidate = case.look, case.vmi, case.ground, case.candidate
    moving = next((e for e in look.ledger.entries if e.vmi_uid == vmi.uid and e.in_flight), None)
    if moving is not None:
        return (
            f"on the move from {moving.source} to {moving.target or 'a node not known yet'} ({moving.phase})"
        )
    if ground is None:
        return f"stays out of it: it is on no node (phase {vmi.phase or 'not set'})"
    failed = next((rule for rule in _rules_of_node(case) if rule.holds is False), None)
    if failed is not None:
        return f"stays: {failed.text}"
    if candidate is None:
        reason = why_not_movable(vmi, case.pod, ground.kubevirt, migrating=False)
    else:
        reason = why_not(candidate, ground) or (weighed if isinstance(weighed, Reason) else None)
    if reason is not None:
        return f"passed over: {reason.text}"
    choice = select(ground).choice
    if choice is not None and choice.candidate.vmi.uid == vmi.uid:
        return f"would move next from {ground.source.name} to {choice.target}"
    first = f": {choice.candidate.key}" if choice is not None else ""
    return f"may move, but another VM of {ground.source.name} comes first{first}"


def _rules_of_node(case: _Case) -> Iterator[RuleVerdict]:
    """The class, the gate, and whether the node still hurts once the moves under way are charged."""
    look, ground = case.look, case.ground
    if ground is None:
        return
    node = ground.source
    node_class, reason = class_of(node, look.classification, look.policy.node_selector)
    if look.classification.skipped:
        yield RuleVerdict(
            claim="its node is over-utilised", holds=None, text=f"not decided: {look.classification.skipped}"
        )
    else:
        over = look.classification.class_of(node.name) is NodeClass.OVER
        text = f"{node.name} is {_in_words(node_class)}: {reason}"
        yield RuleVerdict(claim="its node is over-utilised", holds=over, text=text)
    slots = look.survey.slots_of(node.name, look.policy, ground.ledger)
    closed = why_closed(node.name, slots, ground.ledger, look.policy, ground.now)
    yield _verdict("its node may send a VM now", closed)
    if ground.picture.use(node.name, node.allocatable) is None:
        yield RuleVerdict(
            claim="its node feels its load", holds=None, text=f"the load of {node.name} is unknown"
        )
    else:
        hurts = ground.picture.hurts(node.name, node.allocatable, look.policy.thresholds.floor)
        text = "" if hurts else f"{node.name} is below every floor, the moves under way counted"
        yield RuleVerdict(claim="its node feels its load", holds=hurts, text=text)


def _rules_of_vm(case: _Case, weighed: Choice | Reason | None) -> Iterator[RuleVerdict]:
    if case.ground is None or case.candidate is None:
        kubevirt = case.look.view.kubevirt()
        yield _verdict(
            "an eviction would live-migrate it",
            why_not_movable(case.vmi, case.pod, kubevirt, migrating=False),
        )
        return
    for rule in RULES:
        if rule is REFUSAL:
            yield RuleVerdict(
                claim=rule.claim, holds=None, text="only the running descheduler remembers that"
            )
        else:
            yield _verdict(rule.claim, rule.why_not(case.candidate, case.ground))
    if isinstance(weighed, Reason):
        unknown = weighed.code in ("NotMeasured", "DestinationUnknown")
        yield RuleVerdict(claim="its move would help", holds=None if unknown else False, text=weighed.text)
    elif weighed is not None:
        yield RuleVerdict(claim="its move would help", holds=True, text=weighed.why)


def _verdict(claim: str, reason: Reason | None) -> RuleVerdict:
    return RuleVerdict(claim=claim, holds=reason is None, text=reason.text if reason is not None else "")


def _in_words(node_class: str) -> str:
    words = {"Over": "over-utilised", "Under": "under-utilised", "NotEligible": "not eligible"}
    return words.get(node_class, node_class.lower())


def _fits_on(placement: Placement) -> tuple[ScoredNode, ...]:
    best_first = sorted(placement.scores, key=lambda scored: (-scored[1], scored[0].name))
    return tuple(ScoredNode(node=node.name, score=score) for node, score in best_first)


def _misfits(placement: Placement) -> Iterator[Misfits]:
    groups: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for node, reason in sorted(placement.misfits.items()):
        groups[reason.code].append((node, reason.text))
    for code, found in sorted(groups.items(), key=lambda group: (-len(group[1]), group[0])):
        yield Misfits(code=code, text=found[0][1], nodes=tuple(node for node, _ in found))


def _migrations(migrations: Sequence[Vmim], vmi: Vmi) -> Iterator[PastMigration]:
    latest_first = sorted(
        migrations, key=lambda m: (str(m.metadata.creation_timestamp), m.metadata.name), reverse=True
    )
    for migration in latest_first:
        state, record = migration.migration_state, finished_record(migration, vmi.uid)
        yield PastMigration(
            name=migration.metadata.name,
            source=(state.source_node if state is not None else "") or migration.evacuation_of,
            target=state.target_node if state is not None else "",
            phase=migration.phase,
            created_at=migration.metadata.creation_timestamp,
            took_s=record.took.total_seconds() if record is not None else None,
            failure=state.failure_reason if state is not None else "",
        )
