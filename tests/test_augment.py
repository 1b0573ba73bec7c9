"""Augmentations: each operation against Pillow, and what is drawn against its distribution."""

import colorsys
import math
import random
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageEnhance, ImageFilter, ImageOps
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from normscope.augment import DRAWS, PRESETS, Augmentation, Parameters

STEP = 1 / 255  # Pillow's resolution
ROUNDED = 0.51 * STEP  # one rounding to eight bits
EVERYTHING = Augmentation(size=24, blur=(0.5, 0.5), solarize=(0.5, 0.5))
seeds = st.integers(0, 2**31)


def random_images(n: int, side: int = 24, *, height: int | None = None, seed: int = 0) -> Tensor:
    """Noise around a random colour, so that some pixels are saturated and many are not."""
    generator = torch.Generator().manual_seed(seed)
    colours = torch.randint(256, (n, 3, 1, 1), generator=generator)
    noise = torch.randint(-90, 91, (n, 3, height or side, side), generator=generator)
    return (colours + noise).clamp(0, 255).to(torch.uint8)


def pillow(image: Tensor) -> Image.Image:
    return Image.fromarray(np.ascontiguousarray(image.permute(1, 2, 0).numpy()))


def tensor(image: Image.Image) -> Tensor:
    return torch.from_numpy(np.array(image)).permute(2, 0, 1) / 255


def draw(augment: Augmentation, n: int, *, seed: int = 0, view: int = 0, side: int = 24):
    generator = torch.Generator().manual_seed(seed)
    return augment.draw(n, height=side, width=side, generator=generator, view=view)


def untouched(n: int, **changes: Tensor) -> Parameters:
    """Parameters that do nothing, but for the changes."""
    no = torch.zeros(n, dtype=torch.bool)
    return Parameters(
        box=torch.tensor([0.0, 0.0, 24.0, 24.0]).expand(n, 4),
        flip=no,
        jitter=torch.tensor([1.0, 1.0, 1.0, 0.0]).expand(n, 4),
        order=torch.arange(4).expand(n, 4),
        grey=no,
        sigma=torch.zeros(n),
        solarize=no,
    )._replace(**changes)


def jitter_of(column: int, amounts: Tensor) -> Tensor:
    jitter = torch.tensor([1.0, 1.0, 1.0, 0.0]).repeat(len(amounts), 1)
    jitter[:, column] = amounts
    return jitter


def test_parameters_that_do_nothing_leave_the_images_as_they_are() -> None:
    images = random_images(5)
    views = EVERYTHING(images, untouched(5))
    torch.testing.assert_close(views, images / 255, rtol=0, atol=1e-6)


@pytest.mark.parametrize(("height", "width", "size"), [(32, 32, 32), (40, 64, 24), (8, 8, 20)])
def test_crop_equals_pillows_bilinear_with_a_box(height: int, width: int, size: int) -> None:
    images = random_images(40, width, height=height)
    augment = Augmentation(size=size, flip=0.5)
    generator = torch.Generator().manual_seed(0)
    parameters = augment.draw(40, height=height, width=width, generator=generator)
    assert 0 < parameters.flip.sum() < 40
    views = augment.crop(images, parameters)
    assert views.dtype == torch.float32
    limit = np.array([width, height, width, height], dtype=np.float32)
    for image, view, box, flip in zip(images, views, parameters.box, parameters.flip, strict=True):
        edges = tuple(np.minimum(box.numpy(), limit).tolist())
        expected = pillow(image).resize((size, size), Image.Resampling.BILINEAR, box=edges)
        expected = ImageOps.mirror(expected) if flip else expected
        # Pillow rounds after each of the two directions
        torch.testing.assert_close(view, tensor(expected), rtol=0, atol=2 * ROUNDED)


def test_crop_of_an_image_in_a_corner_is_that_of_the_image_alone() -> None:
    sizes = torch.tensor([[40, 24], [17, 40], [30, 30], [1, 5]]).repeat(8, 1)
    canvases = random_images(32, 40)
    u = torch.rand(32, DRAWS, generator=torch.Generator().manual_seed(0))
    augment = Augmentation(size=16)
    height, width = sizes.unbind(1)
    drawn = augment.parameters(u, height=height, width=width)
    views = augment(canvases, drawn, sizes)
    for i, (h, w) in enumerate(sizes.tolist()):
        alone = augment.parameters(u[i : i + 1], height=h, width=w)
        torch.testing.assert_close(drawn.rows(slice(i, i + 1)), alone)
        expected = augment(canvases[i : i + 1, :, :h, :w], alone)
        torch.testing.assert_close(views[i : i + 1], expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("column", "enhance", "tolerance"),
    [
        (0, ImageEnhance.Brightness, 2 * ROUNDED),  # Pillow cuts off, it does not round
        (1, ImageEnhance.Contrast, 3 * ROUNDED),  # and it rounds the mean,
        (2, ImageEnhance.Color, 3 * ROUNDED),  # and the grey image
    ],
)
def test_brightness_contrast_and_saturation_equal_pillows(column, enhance, tolerance) -> None:
    images = random_images(30, seed=column)
    factors = torch.linspace(0, 1.8, 30)
    views = EVERYTHING.colour(images, untouched(30, jitter=jitter_of(column, factors)))
    for image, view, factor in zip(images, views, factors.tolist(), strict=True):
        expected = tensor(enhance(pillow(image)).enhance(factor))
        torch.testing.assert_close(view, expected, rtol=0, atol=tolerance)


@given(st.tuples(*[st.floats(0, 1, width=32)] * 3), st.floats(-0.5, 0.5, width=32))
def test_hue_equals_colorsys(rgb: tuple[float, float, float], turns: float) -> None:
    h, s, v = colorsys.rgb_to_hsv(*rgb)
    expected = torch.tensor(colorsys.hsv_to_rgb((h + turns) % 1.0, s, v))
    augment = replace(EVERYTHING, size=2)
    x = torch.tensor(rgb).view(1, 3, 1, 1).expand(1, 3, 2, 2)
    view = augment.colour(x, untouched(1, jitter=jitter_of(3, torch.tensor([turns]))))
    torch.testing.assert_close(view[0, :, 0, 0], expected.float(), rtol=0, atol=2e-6)


def test_hue_equals_pillows_to_its_eight_bits() -> None:
    images = random_images(20)
    turns = torch.linspace(-0.5, 0.5, 20)
    views = EVERYTHING.colour(images, untouched(20, jitter=jitter_of(3, turns)))
    for image, view, turn in zip(images, views, turns.tolist(), strict=True):
        h, s, v = pillow(image).convert("HSV").split()
        moved = (np.array(h, dtype=np.int64) + round(turn * 255)) % 255  # its turn has 255 steps
        moved = Image.fromarray(moved.astype(np.uint8))
        expected = tensor(Image.merge("HSV", (moved, s, v)).convert("RGB"))
        # A step of the hue moves a channel by up to six. Pillow cuts off what is below one, the
        # turn is rounded to one here, and value and saturation are in eight bits too.
        torch.testing.assert_close(view, expected, rtol=0, atol=(6 + 3 + 1) * STEP)
        assert (view - expected).abs().mean() < 1.5 * STEP


def test_grey_and_solarize_equal_pillows() -> None:
    images = random_images(10)
    yes = torch.ones(10, dtype=torch.bool)
    grey = EVERYTHING.colour(images, untouched(10, grey=yes))
    solarized = EVERYTHING.colour(images, untouched(10, solarize=yes))
    for i, image in enumerate(images):
        expected = tensor(pillow(image).convert("L").convert("RGB"))
        torch.testing.assert_close(grey[i], expected, rtol=0, atol=ROUNDED)
        expected = tensor(ImageOps.solarize(pillow(image), 128))
        torch.testing.assert_close(solarized[i], expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize(("size", "radius"), [(3, 1), (32, 1), (64, 3)])
def test_blur_equals_plain_loop_over_a_mirrored_border(size: int, radius: int) -> None:
    augment = Augmentation(size=size, blur=(1.0, 1.0))
    x = random_images(2, size) / 255
    sigma = [0.3, 2.0]
    views = augment.colour(x, untouched(2, sigma=torch.tensor(sigma)))
    for i, s in enumerate(sigma):
        taps = [math.exp(-(k**2) / (2 * s**2)) for k in range(-radius, radius + 1)]
        mirrored = np.pad(x[i].numpy(), [(0, 0), (radius, radius), (radius, radius)], "reflect")
        expected = np.zeros_like(x[i].numpy())
        for dy, a in enumerate(taps):
            for dx, b in enumerate(taps):
                part = mirrored[:, dy : dy + size, dx : dx + size]
                expected += a * b / sum(taps) ** 2 * part
        torch.testing.assert_close(views[i], torch.from_numpy(expected), rtol=0, atol=1e-5)


@pytest.mark.parametrize("sigma", [0.5, 1.0, 1.5])  # at 96 pixels the kernel of 9 holds these
def test_blur_is_near_pillows_boxes(sigma: float) -> None:
    images = random_images(6, 96)
    augment = Augmentation(size=96, blur=(1.0, 1.0))
    views = augment.colour(images, untouched(6, sigma=torch.full((6,), sigma)))
    for image, view in zip(images, views, strict=True):
        expected = tensor(pillow(image).filter(ImageFilter.GaussianBlur(sigma)))
        inner = (..., slice(5, -5), slice(5, -5))  # Pillow repeats the border, and we mirror it
        torch.testing.assert_close(view[inner], expected[inner], rtol=0, atol=4 * STEP)
        change = (image / 255 - expected)[inner].square().mean().sqrt()
        assert (view - expected)[inner].square().mean().sqrt() < 0.06 * change


@given(seeds)
@settings(max_examples=25)
def test_joint_jitter_equals_the_four_in_the_order_drawn(seed: int) -> None:
    augment = replace(EVERYTHING, grayscale=0.0, blur=(0.0, 0.0), solarize=(0.0, 0.0))
    parameters = draw(augment, 6, seed=seed)
    images = random_images(6, seed=seed) / 255
    views = augment.colour(images, parameters)
    for i in range(6):
        x = images[i : i + 1]
        for column in parameters.order[i].tolist():
            one = jitter_of(column, parameters.jitter[i : i + 1, column])
            x = replace(augment, jitter_coin="each").colour(x, untouched(1, jitter=one))
        torch.testing.assert_close(views[i : i + 1], x, rtol=0, atol=1e-5)


@pytest.mark.parametrize("without", ["brightness", "contrast", "saturation", "hue"])
def test_jitter_without_a_strength_equals_its_doing_nothing(without: str) -> None:
    names = ("brightness", "contrast", "saturation", "hue")
    for coin in ("joint", "each"):
        augment = replace(EVERYTHING, jitter_coin=coin, **{without: 0.0})
        parameters = draw(augment, 16)
        column = names.index(without)
        assert parameters.order[:, -1].unique().tolist() == [column]
        assert parameters.jitter[:, column].unique().tolist() == [0.0 if without == "hue" else 1.0]
        images = random_images(16)
        complete = replace(EVERYTHING, jitter_coin=coin).colour(images, parameters)
        torch.testing.assert_close(augment.colour(images, parameters), complete)


@given(seeds, st.sampled_from(sorted(PRESETS)), st.sampled_from([8, 32, 40]), st.integers(0, 1))
@settings(max_examples=40)
def test_views_are_in_range_repeatable_and_independent_of_the_batch(
    seed: int, name: str, size: int, view: int
) -> None:
    augment = PRESETS[name](size)
    images = random_images(6, 24, seed=seed)
    parameters = draw(augment, 6, seed=seed, view=view)
    views = augment(images, parameters)
    assert views.shape == (6, 3, size, size)
    assert views.dtype == torch.float32
    assert ((views >= 0) & (views <= 1)).all()
    assert torch.equal(views, augment(images, draw(augment, 6, seed=seed, view=view)))
    for rows in (slice(2, 5), torch.tensor([5, 0])):
        some = augment(images[rows], parameters.rows(rows))
        torch.testing.assert_close(some, views[rows], rtol=0, atol=1e-5)
    other = augment(images, draw(augment, 6, seed=seed + 1, view=1 - view))
    assert ((views - other).abs().amax((1, 2, 3)) > 0.01).all()


def test_a_seed_crops_alike_whatever_the_colours() -> None:
    one, other = draw(PRESETS["as_coded"](32), 20), draw(PRESETS["simsiam"](64), 20)
    assert torch.equal(one.box, other.box)
    assert torch.equal(one.flip, other.flip)


def rate(happened: Tensor) -> float:
    return happened.float().mean().item()


def test_draw_keeps_to_its_probabilities() -> None:
    n, close = 20_000, 0.015  # four standard errors of a coin
    augment = replace(EVERYTHING, flip=0.3, jitter=0.6, blur=(0.9, 0.1), solarize=(0.0, 0.2))
    first, second = draw(augment, n), draw(augment, n, seed=1, view=1)
    assert rate(first.flip) == pytest.approx(0.3, abs=close)
    assert rate(first.grey) == pytest.approx(0.2, abs=close)
    assert rate(first.sigma > 0) == pytest.approx(0.9, abs=close)
    assert rate(second.sigma > 0) == pytest.approx(0.1, abs=close)
    assert not first.solarize.any()
    assert rate(second.solarize) == pytest.approx(0.2, abs=close)
    done = first.jitter != torch.tensor([1.0, 1.0, 1.0, 0.0])
    assert torch.equal(done.any(1), done.all(1)), "one coin for the four"
    assert rate(done) == pytest.approx(0.6, abs=close)
    orders, counts = first.order.unique(dim=0, return_counts=True)
    assert len(orders) == 24
    assert counts.min() > 0.8 * n / 24
    each = draw(replace(augment, jitter_coin="each"), n)
    done = each.jitter != torch.tensor([1.0, 1.0, 1.0, 0.0])
    assert rate(done.all(1)) == pytest.approx(0.6**4, abs=close)
    assert torch.equal(each.order, torch.arange(4).expand(n, 4))


def test_jitter_is_uniform_between_its_ends() -> None:
    augment = replace(EVERYTHING, jitter=1.0, brightness=0.4, contrast=1.5)
    jitter = draw(augment, 20_000).jitter
    for column, low, high in [(0, 0.6, 1.4), (1, 0.0, 2.5), (2, 0.2, 1.8), (3, -0.2, 0.2)]:
        u = ((jitter[:, column] - low) / (high - low)).sort().values
        assert (u - torch.linspace(0, 1, 20_000)).abs().max() < 0.015  # Kolmogorov, p < 1e-3


@given(
    seeds,
    st.floats(0.01, 0.7),
    st.floats(0, 0.3),
    st.tuples(st.integers(8, 64), st.integers(8, 64)),
)
def test_boxes_lie_in_the_image_with_area_and_ratio_in_their_ranges(
    seed: int, low: float, more: float, sides: tuple[int, int]
) -> None:
    height, width = sides
    augment = Augmentation(size=8, crop_scale=(low, low + more))
    generator = torch.Generator().manual_seed(seed)
    box = augment.draw(50, height=height, width=width, generator=generator).box
    left, top, right, bottom = box.unbind(1)
    assert (box[:, :2] >= 0).all()
    assert right.max() <= width + 1e-4
    assert bottom.max() <= height + 1e-4
    w, h = right - left, bottom - top
    share = w * h / (width * height)
    assert share.max() <= low + more + 1e-4
    fits = (w < width - 1e-3) & (h < height - 1e-3)  # others have lost what stood out
    assert (share[fits] >= low - 1e-4).all()
    ratio = (w / h)[fits]
    assert ((ratio > 3 / 4 - 1e-3) & (ratio < 4 / 3 + 1e-3)).all()


def test_crop_areas_and_places_are_uniform() -> None:
    augment = Augmentation(size=8, crop_scale=(0.1, 0.7))  # below 3/4 every box fits a square
    left, top, right, bottom = draw(augment, 20_000).box.unbind(1)
    w, h = right - left, bottom - top
    even = torch.linspace(0, 1, 20_000)
    for u in ((w * h / 24**2 - 0.1) / 0.6, left / (24 - w), top / (24 - h)):
        assert (u.sort().values - even).abs().max() < 0.015
    log_ratio = (w / h).log() / math.log(4 / 3)
    assert ((log_ratio + 1) / 2 - 0.5).mean().abs() < 0.01


def test_presets_have_the_published_numbers() -> None:
    def colours(augment: Augmentation) -> tuple[float, ...]:
        return augment.brightness, augment.contrast, augment.saturation, augment.hue

    half, full = (0.4, 0.4, 0.4, 0.1), (0.8, 0.8, 0.8, 0.2)
    small = {name: preset(32) for name, preset in PRESETS.items()}
    large = {name: preset(224) for name, preset in PRESETS.items()}
    assert colours(small["simclr"]) == pytest.approx(half)
    assert colours(large["simclr"]) == pytest.approx(full)
    assert colours(large["simsiam"]) == pytest.approx(half)
    assert colours(large["byol"]) == (0.4, 0.4, 0.2, 0.1)
    assert colours(small["as_coded"]) == pytest.approx(half)
    assert colours(small["as_coded_strong"]) == pytest.approx(full)
    assert {a.blur + a.solarize for a in small.values()} == {(0.0,) * 4}
    assert large["simclr"].blur == large["simsiam"].blur == (0.5, 0.5)
    assert large["byol"].blur + large["byol"].solarize == (1.0, 0.1, 0.0, 0.2)
    starts = {name: a.crop_scale[0] for name, a in small.items()}
    assert starts["simclr"] == starts["byol"] == 0.08
    assert starts["simsiam"] == starts["as_coded"] == starts["as_coded_strong"] == 0.2
    assert [name for name, a in small.items() if a.jitter_coin == "each"] == [
        "as_coded",
        "as_coded_strong",
    ]
    assert replace(PRESETS["simclr"](8), size=32) == small["simclr"]


def test_digits_stay_grey_and_are_not_mirrored() -> None:
    augment = PRESETS["digits"](8)
    images = random_images(40, 24)[:, :1].expand(-1, 3, -1, -1)
    parameters = draw(augment, 40)
    views = augment(images, parameters)
    assert not parameters.flip.any()
    torch.testing.assert_close(views[:, 0], views[:, 2])


class Watch(TorchDispatchMode):
    """Collects the operations that reach the device, and the types of what they give."""

    def __init__(self) -> None:
        super().__init__()
        self.operations, self.types = set(), set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        self.operations.add(func.overloadpacket)
        self.types |= {leaf.dtype for leaf in tree_leaves(out) if isinstance(leaf, Tensor)}
        return out


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_views_never_wait_for_the_device_nor_need_double_precision(name: str) -> None:
    augment, images = PRESETS[name](48), random_images(4)
    with Watch() as watch:
        augment(images, draw(augment, 4, view=1))
    aten = torch.ops.aten
    assert aten.bmm in watch.operations
    assert not watch.operations & {aten._local_scalar_dense, aten.nonzero, aten.lift_fresh}
    assert watch.types <= {torch.float32, torch.uint8, torch.bool, torch.int64}


def test_views_compile_into_one_graph() -> None:
    images, parameters = random_images(4), draw(EVERYTHING, 4)
    compiled = torch.compile(EVERYTHING.__call__, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(images, parameters), EVERYTHING(images, parameters))


def test_views_stay_in_float32_under_autocast() -> None:
    images, parameters = random_images(4), draw(EVERYTHING, 4)
    plain = EVERYTHING(images, parameters)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(EVERYTHING(images, parameters), plain)


def test_colour_leaves_its_input_alone() -> None:
    x = random_images(4) / 255
    before = x.clone()
    EVERYTHING.colour(x, draw(EVERYTHING, 4))
    assert torch.equal(x, before)


def test_augmentation_refuses_wrong_arguments_in_one_line() -> None:
    images, parameters = random_images(4), draw(EVERYTHING, 4)
    wrong = {
        "size must be an integer, 2 or more, got 0": {"size": 0},
        "flip must be from 0 to 1, got 1.5": {"flip": 1.5},
        "grayscale must be a finite number, got nan": {"grayscale": math.nan},
        "brightness must be from 0 to inf, got -1": {"brightness": -1},
        "hue must be from 0 to 0.5, got 0.6": {"hue": 0.6},
        "blur must be a tuple of two numbers, got 0.5": {"blur": 0.5},
        "solarize must be from 0 to 1, got 2": {"solarize": (0.0, 2)},
        "crop_scale must be a positive finite number, got 0": {"crop_scale": (0, 1)},
        "crop_scale must be from 0.5 to 1, got 0.2": {"crop_scale": (0.5, 0.2)},
        "jitter_coin must be 'joint' or 'each', got 'one'": {"jitter_coin": "one"},
    }
    cases = [(lambda c=c: replace(EVERYTHING, **c), message) for message, c in wrong.items()]
    cases += [
        (lambda: draw(EVERYTHING, 4, view=2), "view must be 0 or 1, got 2"),
        (lambda: EVERYTHING(images[:3], parameters), "images must be a uint8 tensor .* n = 4"),
        (lambda: EVERYTHING.crop(images / 255, parameters), "images must be a uint8 tensor"),
        (lambda: EVERYTHING.colour(images[:, :1], parameters), r"images must be of shape \(4, 3"),
    ]
    for call, message in cases:
        with pytest.raises(ValueError, match=message) as error:
            call()
        assert "\n" not in str(error.value)


def test_crops_are_as_large_as_those_drawn_again_until_they_fit() -> None:
    augment, n = Augmentation(size=32), 20_000
    generator = torch.Generator().manual_seed(0)
    box = augment.draw(n, height=32, width=32, generator=generator).box
    ours = ((box[:, 2] - box[:, 0]) * (box[:, 3] - box[:, 1]) / 32**2).tolist()
    rng, theirs = random.Random(0), []
    while len(theirs) < n:
        area, ratio = rng.uniform(0.08, 1), math.exp(rng.uniform(math.log(3 / 4), math.log(4 / 3)))
        if area * ratio <= 1 and area / ratio <= 1:  # a square image
            theirs.append(area)
    for share in (0.1, 0.5, 0.9):
        place = int(share * n)
        assert sorted(ours)[place] == pytest.approx(sorted(theirs)[place], abs=0.01)
