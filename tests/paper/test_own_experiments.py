"""Experiments of our own on rates: what they train, and what follows from it."""

from types import SimpleNamespace

import pytest
import torch
from torch.nn.functional import normalize

from normscope.engine import RunSpec
from normscope_paper.harness import RunTable
from normscope_paper.harness.sweep import spec_at
from normscope_paper.own import angular, cut_limits


class FakeSweep:
    """Runs that were never trained: the kNN is a function of the spec."""

    def __init__(self, knn) -> None:
        self.knn, self.asked = knn, []

    def runs(self, specs, **_):
        self.asked += specs
        made = SimpleNamespace(data_checksum="same")
        return [
            SimpleNamespace(
                spec=spec, knn=self.knn(spec), norm=1.0, made=made, metrics=lambda _: []
            )
            for spec in specs
        ]


def knn_of(spec: RunSpec) -> float:
    """Best at .05 rad, and for SGD at a rate of .5; orthogonal steps bring .1, seeds differ."""
    best = 0.05 if spec.optimizer == "angular" else 0.5
    near = min(spec.lr / best, best / spec.lr)
    orthogonal = 0.1 * (spec.optimizer == "angular" and spec.orthogonal)
    return 0.5 + 0.2 * near + orthogonal + 1e-3 * (spec.seed % 3) * spec.lr


def test_settings_are_chosen_on_images_that_the_table_does_not_judge() -> None:
    sweep = FakeSweep(knn_of)
    results = angular.run("small", 0, 2, sweep)
    table = RunTable.of(results)
    tried = [spec for spec in sweep.asked if spec.seed == angular.TUNING_SEED]
    judged = [spec for spec in sweep.asked if spec.seed != angular.TUNING_SEED]
    assert {spec.data for spec in tried} == {"cifar10-held-out"}
    assert {spec.data for spec in judged} == {"cifar10", "cifar100", "cifar10-unbalanced"}
    for method in angular.methods("small"):
        of = [spec for spec in tried if spec.method == method]
        angles = [spec for spec in of if spec.optimizer == "angular"]
        assert len(of) - len(angles) >= len(angles) == 4  # SGD has no fewer tries
    for row, lr in ((angular.ANGULAR, 0.05), (angular.SGD, 0.54)):
        cell = table[row, "SimCLR, CIFAR-100", "text"]
        assert [run["lr"] for run in cell.runs] == [lr, lr]


def test_one_more_rate_is_tried_beyond_a_best_rate_at_the_edge() -> None:
    sweep = FakeSweep(lambda spec: min(spec.lr, 0.9) if spec.optimizer == "sgd" else knn_of(spec))
    tuning = angular.run("small", 0, 2, sweep).data["tuning"]["simsiam"]
    rates = sorted({one["lr"] for one, _ in tuning[angular.SGD]})
    assert rates == [0.12, 0.36, 1.08, 3.24]  # three times the highest
    assert len(tuning[angular.SGD]) == 8  # with either decay
    assert [one["lr"] for one, _ in tuning[angular.ANGULAR]] == list(angular.ANGLES)


def test_every_arm_and_method_is_compared_at_paper_scale() -> None:
    table = RunTable.of(angular.run("paper", 0, 2, FakeSweep(knn_of)))
    for method in ("SimCLR", "SimSiam", "BYOL", "MoCo v2"):
        rows = {cell.row for cell in table.cells if cell.column == f"{method}, CIFAR-10"}
        assert {angular.PLAIN, angular.CUT, angular.SCALED, angular.RAISED} < rows
        cell = table[angular.PLAIN, f"{method}, CIFAR-100", "text"]
        assert [run["lr"] for run in cell.runs] == [0.05, 0.05]


@pytest.mark.parametrize("scale", ["smoke", "small"])
def test_all_arms_have_one_batch_and_temperature_but_the_row_that_tells_their_share(scale) -> None:
    results = angular.run(scale, 0, 2, FakeSweep(knn_of))
    for column in RunTable.of(results).columns:
        cells = [cell for cell in RunTable.of(results).cells if cell.column == column]
        specs = {cell.row: spec_at(scale, **cell.values) for cell in cells}
        text = specs.pop(angular.TEXT, None)
        alike = {
            (s.batch, s.accumulate, s.options.get("temperature"), s.epochs) for s in specs.values()
        }
        assert len(alike) == 1
        if text is not None:
            assert text == RunSpec(
                method=text.method, data=text.data, net=text.net, epochs=text.epochs
            )
            assert text not in specs.values()


def test_the_angles_claims_can_come_out_either_way() -> None:
    def verdicts(knn) -> dict[str, str]:
        claims = angular.check(angular.run("smoke", 0, 3, FakeSweep(knn)))
        return {claim.sentence: claim.verdict for claim in claims}

    start = "SimCLR, digits: "
    ahead, level = (
        start + "angular is above SGD, tuned (points of kNN)",
        start + "angular, cut is level with angular (points of kNN)",
    )
    inside = "SimCLR: angular's best rate lies inside those tried (its place)"
    found = verdicts(knn_of)
    assert [found[s] for s in (ahead, level, inside)] == ["reproduced"] * 3
    found = verdicts(lambda s: 1 - knn_of(s) + 0.2 * (s.cut == 1) * (s.optimizer == "angular"))
    assert found[level] == "not reproduced"
    assert found[inside] == "not reproduced"
    assert verdicts(lambda s: knn_of(s) - 0.3 * (s.optimizer == "angular"))[ahead] != "reproduced"


def after_three_steps(*, cut: float, biases: bool, epsilon: float, matched: bool) -> torch.Tensor:
    """Directions of embeddings after SGD at a rate of .01 c squared over the cut's square."""
    c = cut_limits.C
    views = torch.rand(2, 8, 3, 8, 8, generator=torch.Generator().manual_seed(0)).double()
    net = cut_limits.network(RunSpec(cut=cut), biases=biases, epsilon=epsilon).double()
    groups = [{"params": [p for p in net.parameters() if p.requires_grad]}]
    if matched and cut != 1:  # what follows k layers is divided by c to the k
        own = [p for name, p in net.projector.named_parameters() if name.endswith("bias")]
        groups[0]["params"] = [p for p in groups[0]["params"] if all(p is not b for b in own)]
        for k, bias in enumerate(own, start=2):
            bias.data /= c ** (k - 1)
            groups.append({"params": [bias], "lr": 0.01 * (c / cut) ** 2 * c ** (2 - 2 * k)})
    optimizer = torch.optim.SGD(groups, lr=0.01 * (c / cut) ** 2, momentum=0.9)
    for _ in range(3):
        optimizer.zero_grad()
        net(views, torch.zeros(8)).loss.backward()
        optimizer.step()
    return normalize(net(views, torch.zeros(8)).embeddings.detach(), dim=-1)


@pytest.mark.parametrize(
    ("biases", "epsilon", "matched", "same"),
    [
        (False, 1e-14, False, True),
        (True, 1e-14, True, True),
        (True, 1e-14, False, False),
        (False, 1e-5, False, False),
    ],
)
def test_a_cut_is_a_learning_rate_but_for_biases_and_epsilon(
    biases: bool, epsilon: float, matched: bool, same: bool
) -> None:
    found = [
        after_three_steps(cut=cut, biases=biases, epsilon=epsilon, matched=matched)
        for cut in (cut_limits.C, 1.0)
    ]
    apart = (found[0] - found[1]).abs().max()
    assert apart < 1e-6 if same else apart > 1e-2  # a cut in float32 rounds


def test_the_cuts_limits_are_judged_arm_by_arm() -> None:
    knns = {arm: {"cut": [90.0, 91.0, 90.5], "rate": [90.2, 90.9, 90.5]} for arm in cut_limits.ARMS}
    knns[cut_limits.AS_IS]["cut"] = [85.0, 86.0, 85.5]
    results = SimpleNamespace(data={"knns": knns})
    assert [claim.verdict for claim in cut_limits.check(results)] == ["reproduced"] * 4
    knns[cut_limits.NEITHER]["cut"] = [80.0, 81.0, 80.5]
    assert cut_limits.check(results)[-1].verdict == "not reproduced"
