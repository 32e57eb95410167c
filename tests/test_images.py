"""Pictures at the door: what is read, how, and what is refused by name; drawn corpora; features kept on the disk."""

import io
import json
import resource
import struct
import sys
import tarfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from regard.corpora import shapes
from regard.data.captions import (
    PictureFiles,
    beside,
    open_captions,
    read_captions,
    without_punctuation,
)
from regard.data.images import MOST_PIXELS, as_tensor, encode_png, read_picture
from regard.data.prepare import prepare
from regard.data.settings import CaptionConfig
from regard.errors import ConfigError, DataError
from regard.evaluate.scores import score_captions
from regard.models.captioner import PRESETS
from regard.training.caption_data import CaptionEncoding

RED, BLUE = (200, 30, 40), (20, 60, 210)


def halves(width: int = 40, height: int = 20) -> Image.Image:
    """Left half red, right half blue."""
    picture = Image.new("RGB", (width, height), RED)
    picture.paste(BLUE, (width // 2, 0, width, height))
    return picture


def encoded(picture: Image.Image, kind: str, **how: Any) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, kind, **how)
    return buffer.getvalue()


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png_bomb(width: int, height: int, extra: bytes = b"") -> bytes:
    """A small PNG file that unfolds into width x height pixels."""
    header = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    packer = zlib.compressobj(9)
    row = b"\0" * (1 + (width + 7) // 8)
    data = b"".join(packer.compress(row * 64) for _ in range(min(height, 4096) // 64 + 1)) + packer.flush()
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + extra + chunk(b"IDAT", data) + chunk(b"IEND", b"")


# --- what is read ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_the_three_formats_are_recognised_by_their_content(kind: str, tmp_path: Path):
    path = tmp_path / "picture.txt"  # the name says nothing
    path.write_bytes(encoded(halves(), kind, quality=95) if kind != "PNG" else encoded(halves(), kind))
    pixels = read_picture(path, 16)
    assert pixels.shape == (16, 16, 3)
    assert pixels.dtype == np.uint8
    assert np.abs(pixels[:, 2].astype(int) - RED).max() < 12
    assert np.abs(pixels[:, -3].astype(int) - BLUE).max() < 12


def test_the_middle_square_is_taken():
    wide = Image.new("RGB", (90, 30), "white")
    wide.paste("black", (30, 0, 60, 30))
    assert (read_picture(encoded(wide, "PNG"), 10)[:, 1:-1] < 10).all()


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_picture_is_turned_as_its_exif_says(orientation: int):
    """What the camera saw upright: red, green, blue and white corners."""
    upright = Image.new("RGB", (32, 32))
    for place, colour in (((0, 0), "red"), ((16, 0), "lime"), ((0, 16), "blue"), ((16, 16), "white")):
        upright.paste(colour, (*place, place[0] + 16, place[1] + 16))
    turns = {
        2: Image.Transpose.FLIP_LEFT_RIGHT,
        3: Image.Transpose.ROTATE_180,
        4: Image.Transpose.FLIP_TOP_BOTTOM,
        5: Image.Transpose.TRANSPOSE,
        6: Image.Transpose.ROTATE_90,
        7: Image.Transpose.TRANSVERSE,
        8: Image.Transpose.ROTATE_270,
    }
    stored = upright.transpose(turns[orientation]) if orientation in turns else upright
    exif = Image.Exif()
    exif[0x0112] = orientation
    pixels = read_picture(encoded(stored, "PNG", exif=exif), 32)
    assert np.array_equal(pixels, np.asarray(upright))


def test_other_colour_spaces_become_red_green_blue():
    clear = Image.new("RGBA", (8, 8), (255, 0, 0, 0))
    assert (read_picture(encoded(clear, "PNG"), 8) == 255).all(), "transparent is white"
    grey = Image.fromarray(np.full((8, 8), 40_000, dtype=np.uint16))
    assert (read_picture(encoded(grey, "PNG"), 8) == 40_000 // 257).all()
    palette = halves(8, 8).quantize(4)
    assert np.abs(read_picture(encoded(palette, "PNG"), 8)[0, 0].astype(int) - RED).max() < 8
    inks = halves(16, 16).convert("CMYK")
    assert read_picture(encoded(inks, "JPEG"), 16).shape == (16, 16, 3)
    bits = Image.new("1", (8, 8), 1)
    assert (read_picture(encoded(bits, "PNG"), 8) == 255).all()


def test_pictures_become_numbers_between_zero_and_one():
    tensor = as_tensor([read_picture(encoded(halves(), "PNG"), 16)] * 2)
    assert tensor.shape == (2, 3, 16, 16)
    assert tensor.dtype == torch.float32
    assert torch.allclose(tensor[0, :, 3, 2], torch.tensor(RED) / 255, atol=0.02)
    pixels = (tensor[0].permute(1, 2, 0) * 255).round().to(torch.uint8).numpy()
    assert np.array_equal(read_picture(encode_png(pixels), 16), pixels)


# --- what is refused -------------------------------------------------------------------------------------------------


def test_anything_else_is_refused_by_name(tmp_path: Path):
    for kind in ("GIF", "BMP", "TIFF", "PPM", "ICO"):
        path = tmp_path / f"fake-{kind}.png"
        path.write_bytes(encoded(halves(32, 32), kind))
        with pytest.raises(
            DataError, match=rf"fake-{kind}\.png has another format; a picture must be JPEG, PNG or WebP"
        ):
            read_picture(path, 8)
    with pytest.raises(DataError, match=r"cat is empty; a picture must be"):
        read_picture(b"", 8, "cat")
    with pytest.raises(DataError, match="has another format"):
        read_picture(b"<svg xmlns='http://www.w3.org/2000/svg'/>", 8, "cat")
    with pytest.raises(DataError, match=r"There is no picture .*; check the path"):
        read_picture(tmp_path / "none.png", 8)
    with pytest.raises(DataError, match="is a folder"):
        read_picture(tmp_path, 8)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
@pytest.mark.parametrize("share", [0.3, 0.6, 0.95])
def test_truncated_files_are_refused(kind: str, share: float):
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 255, (64, 64, 3), dtype=np.uint8))
    data = encoded(noise, kind)
    with pytest.raises(DataError, match=r"cat\.jpg is (truncated or )?damaged"):
        read_picture(data[: int(len(data) * share)], 32, "cat.jpg")


def test_damaged_files_are_refused_or_read_but_never_crash():
    """Bytes flipped anywhere: a picture of the right shape, or a DataError, nothing else."""
    draw = np.random.default_rng(1)
    refused = []
    for kind in ("JPEG", "PNG", "WEBP"):
        data = bytearray(encoded(halves(48, 48), kind))
        for _ in range(60):
            broken = bytearray(data)
            for place in draw.integers(0, len(data), 3):
                broken[place] = draw.integers(0, 256)
            try:
                assert read_picture(bytes(broken), 16, "x").shape == (16, 16, 3)
            except DataError as error:
                refused.append(str(error))
    assert len(refused) > 20
    assert all(text.startswith("x ") and "\n" not in text for text in refused)


@pytest.mark.parametrize(("width", "height"), [(6000, 4001), (30_000, 30_000), (65_000, 65_000), (1, 24_000_001)])
def test_bombs_are_refused_before_a_pixel_is_decoded(width: int, height: int):
    data = png_bomb(width, height)
    assert len(data) < 1 << 20
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(DataError, match=r"bomb\.png has .*(megapixels|pixels).*[Ss]cale it down"):
        read_picture(data, 16, "bomb.png")
    unit = 1 if sys.platform == "darwin" else 1 << 10  # bytes
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * unit < 64 << 20


def test_webp_and_jpeg_bombs_are_refused():
    webp = bytearray(encoded(Image.new("L", (64, 64)), "WEBP", quality=1))
    frame = webp.index(b"\x9d\x01\x2a")
    webp[frame + 3 : frame + 7] = struct.pack("<HH", 6_000, 6_000)  # width and height in the frame header
    with pytest.raises(DataError, match="6000 x 6000 pixels; at most 24 megapixels"):
        read_picture(bytes(webp), 16, "bomb.webp")
    jpeg = bytearray(encoded(Image.new("L", (64, 64)), "JPEG"))
    frame = jpeg.index(b"\xff\xc0")
    jpeg[frame + 5 : frame + 9] = struct.pack(">HH", 65_000, 65_000)  # height and width in the frame header
    with pytest.raises(DataError, match="megapixels"):
        read_picture(bytes(jpeg), 16, "bomb.jpg")
    scans = encoded(halves(), "JPEG", progressive=True) + b"\xff\xda" * 80
    with pytest.raises(DataError, match="more than 64 scans"):
        read_picture(scans, 16, "slow.jpg")


def test_packed_text_chunks_are_not_unfolded():
    packed = zlib.compress(b"\0" * (20 << 20), 9)
    data = png_bomb(16, 16, chunk(b"zTXt", b"Comment\0\0" + packed))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(DataError, match=r"^bomb\.png is "):
        read_picture(data, 16, "bomb.png")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 16 << 10


@pytest.mark.slow
def test_the_largest_picture_fits_into_256_megabytes():
    side = int(MOST_PIXELS**0.5)
    data = encoded(Image.new("RGBA", (side, side), (10, 20, 30, 128)), "PNG")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert read_picture(data, 64, "large.png").shape == (64, 64, 3)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 256 << 10


# --- captions --------------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "photos"
    (place / "deep").mkdir(parents=True)
    for number, name in enumerate(["one.jpg", "two.png", "deep/three.webp", "bare.png"]):
        kind = {"jpg": "JPEG", "png": "PNG", "webp": "WEBP"}[name.split(".")[-1]]
        (place / name).write_bytes(encoded(halves(40 + number, 40), kind))
    (place / "one.txt").write_text("A red half.\nblue, on the right\n\n", encoding="utf-8")
    (place / "two.txt").write_text("two halves", encoding="utf-8")
    (place / "deep" / "three.txt").write_text("deep", encoding="utf-8")
    return place


def packed(folder: Path, path: Path) -> Path:
    with tarfile.open(path, "w") as archive:
        for name in ("one.jpg", "two.png", "deep/three.webp", "bare.png", "one.txt"):
            archive.add(folder / name, name)
    return path


def test_a_folder_with_text_beside_the_pictures(folder: Path):
    pictures = PictureFiles(folder)
    assert pictures.names == ["bare.png", "deep/three.webp", "one.jpg", "two.png"]
    found = list(beside(pictures))
    assert [(entry.image, entry.captions) for entry in found] == [
        ("deep/three.webp", ["deep"]),
        ("one.jpg", ["A red half.", "blue, on the right"]),
        ("two.png", ["two halves"]),
    ]


def test_a_tar_file_gives_the_same_bytes_and_is_never_unpacked(folder: Path, tmp_path: Path):
    before = sorted(tmp_path.rglob("*"))
    path = packed(folder, tmp_path / "photos.tar")
    archive, plain = PictureFiles(path), PictureFiles(folder)
    assert sorted(archive.names) == plain.names
    assert all(archive.read(name) == plain.read(name) for name in plain.names)
    assert sorted(tmp_path.rglob("*")) == sorted([*before, path])


def test_names_that_lead_out_are_refused(folder: Path, tmp_path: Path):
    (tmp_path / "secret.jpg").write_bytes(b"secret")
    (folder / "link.jpg").symlink_to(tmp_path / "secret.jpg")
    pictures = PictureFiles(folder)
    for name in ("../secret.jpg", str(tmp_path / "secret.jpg"), "link.jpg", "none.jpg"):
        with pytest.raises(DataError, match="holds no picture"):
            pictures.read(name)
    with pytest.raises(DataError, match="holds no picture"):
        PictureFiles(packed(folder, tmp_path / "photos.tar")).read("../secret.jpg")


def test_bad_tar_files_are_refused(folder: Path, tmp_path: Path):
    twice = tmp_path / "twice.tar"
    with tarfile.open(twice, "w") as archive:
        archive.add(folder / "one.jpg", "one.jpg")
        archive.add(folder / "one.jpg", "one.jpg")
    with pytest.raises(DataError, match=r"holds 'one\.jpg' twice"):
        PictureFiles(twice)
    (tmp_path / "no.tar").write_bytes(b"hello" * 200)
    with pytest.raises(DataError, match="not an uncompressed tar file"):
        PictureFiles(tmp_path / "no.tar")
    with pytest.raises(DataError, match="There is no file or folder"):
        PictureFiles(tmp_path / "nothing")


def test_json_lines_are_read_and_errors_name_the_line(tmp_path: Path):
    path = tmp_path / "captions.jsonl"
    path.write_text('{"image": "a.jpg", "captions": ["one", "two\\u2028b"]}\n\n', encoding="utf-8")
    assert next(read_captions(path)).captions == ["one", "two\u2028b"]
    for text, message in (
        ("[1]", "line 1: expected"),
        ('{"image": "a.jpg"}', "'captions' is missing"),
        ('{"image": "a.jpg", "captions": [3]}', "captions must be text"),
        ('{"image": "a.jpg", "captions": "x"}', "captions a list"),
        (
            '{"image": "a", "captions": ["x"]}\n{"image": "a", "captions": ["y"]}',
            "line 2: the picture 'a' occurs twice",
        ),
        ("{", "line 1: expected"),
    ):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(DataError, match=message):
            list(read_captions(path))


def test_captions_and_pictures_must_belong_together(folder: Path, tmp_path: Path):
    path = tmp_path / "captions.jsonl"
    path.write_text('{"image": "other.jpg", "captions": ["x"]}\n', encoding="utf-8")
    with pytest.raises(DataError, match=r"names the picture 'other\.jpg', which is not in"):
        list(open_captions(str(folder), str(path))[1])
    with pytest.raises(DataError, match=r"needs captions"):
        open_captions(str(packed(folder, tmp_path / "photos.tar")), "")
    path.write_text('{"image": "one.jpg", "captions": [" "]}\n', encoding="utf-8")
    with pytest.raises(DataError, match="holds no picture with a caption"):
        list(open_captions(str(folder), str(path))[1])


def test_punctuation_goes_and_nothing_else():
    assert without_punctuation("A dog's  ball, red-and-white . «où» 100 %\u00a0£") == "A dogs ball redandwhite où 100 £"


def test_settings_that_cannot_be_are_refused():
    for settings, message in (
        ({"images": "a", "corpus": "shapes"}, "Both data.images and data.corpus"),
        ({"corpus": "shapes", "size": 1}, "data.size must be at least 2"),
        ({"corpus": "shapes", "dev_captions": "x"}, "without data.dev_images"),
    ):
        with pytest.raises(ConfigError, match=message):
            CaptionConfig(**settings)


def test_no_pictures_are_refused_when_they_are_needed(tmp_path: Path):
    with pytest.raises(ConfigError, match="There is no corpus"):
        prepare(CaptionEncoding(CaptionConfig(), None, tmp_path), tmp_path)


def test_an_album_of_photographs(folder: Path, tmp_path: Path, monkeypatch):
    """Each caption is an example beside its picture; the held-out pictures are others than those trained on."""
    config = CaptionConfig(images=str(folder), held_out=1)
    data = prepare(CaptionEncoding(config, PRESETS["tiny"], tmp_path / "run"), tmp_path / "run")
    entries = [
        ("deep/three.webp", ["deep"]),
        ("one.jpg", ["a red half", "blue on the right"]),
        ("two.png", ["two halves"]),
    ]
    sides = [set(album.pictures.tolist()) for album in (data.train, data.dev)]
    assert sides[0] | sides[1] == {0, 1, 2}
    assert not sides[0] & sides[1]
    assert data.shown == [list(entries[number]) for number in sides[1]]
    for album in (data.train, data.dev):
        for number, picture in enumerate(album.pictures):
            text = data.vocabulary.decode(album.targets.row(number))
            assert text in entries[picture][1] or "<unk>" in text
            pixels = as_tensor([read_picture(folder / entries[picture][0], 64)])
            assert torch.equal(album.source([picture]), pixels)
    monkeypatch.setattr("regard.data.prepare.MEMORY", 1)  # hardly anything is kept between the passes
    other = prepare(CaptionEncoding(config, PRESETS["tiny"], tmp_path / "other"), tmp_path / "other")
    assert other.train.pictures.tolist() == data.train.pictures.tolist()
    assert other.shown == data.shown
    again = prepare(CaptionEncoding(config, PRESETS["tiny"], tmp_path / "run"), tmp_path / "run")
    assert again.vocabulary.fingerprint == data.vocabulary.fingerprint
    assert again.train.targets.values.tolist() == data.train.targets.values.tolist()


# --- the drawn corpus ------------------------------------------------------------------------------------------------


def test_scenes_are_a_function_of_their_number():
    assert shapes.scene(7, seed=3) == shapes.scene(7, seed=3)
    assert shapes.scene(7, seed=3) != shapes.scene(7, seed=4)
    assert np.array_equal(shapes.draw_scene(shapes.scene(7)), shapes.draw_scene(shapes.scene(7)))
    assert len({shapes.scene(number).caption for number in range(200)}) > 150


@pytest.mark.parametrize("grid", [3, 4, 7])
def test_captions_tell_the_truth(grid: int):
    """Every colour and shape word stands beside the cell that shows it, and every relation holds there."""
    known = set(shapes.vocabulary_words())
    for number in range(300):
        shown = shapes.scene(number, grid=grid)
        words = shown.caption.split(" ")
        assert set(words) <= known
        assert len(words) == len(shown.cells)
        assert len({thing.cell for thing in shown.things}) == len(shown.things)
        at = {thing.cell: thing for thing in shown.things}
        named = [thing for thing in shown.things if thing.colour]
        assert sorted(named, key=lambda thing: list(shapes.COLOURS).index(thing.colour)) == named
        for word, cell in zip(words, shown.cells, strict=True):
            assert (cell is None) == (word not in shapes.COLOURS and word not in shapes.SHAPES)
            if cell is not None:
                assert word in (at[cell].colour, at[cell].shape)
        row, column = divmod(named[0].cell, grid)
        relations = [word for word in words if word in ("left", "right", "above", "below")]
        for thing, relation in zip(named[1:], relations, strict=True):
            down, right = thing.cell // grid - row, thing.cell % grid - column
            assert {"left": right > 0, "right": right < 0, "above": down > 0, "below": down < 0}[relation]
            assert down == 0 or right == 0


def test_a_shape_is_drawn_in_its_cell_and_nowhere_else():
    for number in range(60):
        shown = shapes.scene(number)
        pixels = shapes.draw_scene(shown).astype(int)
        cells = pixels.reshape(4, 16, 4, 16, 3).swapaxes(1, 2).reshape(16, -1, 3)
        for cell in range(16):
            there = [thing for thing in shown.things if thing.cell == cell]
            paper = (cells[cell] == shapes.PAPER).all(-1)
            assert paper.all() == (not there)
            for thing in there:
                colour = shapes.COLOURS.get(thing.colour, shapes.GREY)
                assert (cells[cell] == colour).all(-1).mean() > 0.05


def test_shapes_are_distinguishable():
    """At one size and place, any two shapes differ in at least a tenth of the pixels that either of them fills."""
    thing = shapes.scene(0).things[0]._replace(cell=0, size=6.0, shift=(0.0, 0.0), colour="black")
    drawn = {
        name: shapes.draw_scene(shapes.Scene((thing._replace(shape=name),), "", ())).mean(-1) < 128
        for name in shapes.SHAPES
    }
    for first in drawn:
        for second in drawn:
            if first < second:
                either = drawn[first] | drawn[second]
                assert (drawn[first] ^ drawn[second]).sum() / either.sum() > 0.1, (first, second)


def test_a_grid_too_small_is_refused():
    with pytest.raises(DataError, match="at least 3 x 3"):
        shapes.scene(0, grid=2)


# --- scores ----------------------------------------------------------------------------------------------------------


def test_caption_scores_are_bleu_one_to_four():
    references = [["a red circle above a blue square", "a circle"], ["a green cross"]]
    perfect = score_captions(["a red circle above a blue square", "a green cross"], references)
    assert perfect.bleu[:3] == pytest.approx((100.0,) * 3)
    written = ["a red circle", "a green cross cross"]
    found = score_captions(written, references)
    # by hand: unigrams 6 of 7, bigrams 4 of 5, trigrams 2 of 3, no 4-gram of 1; lengths 7 against 2 (closest) + 3
    assert found.without_penalty[0] == pytest.approx(100 * 6 / 7)
    assert found.without_penalty[1] == pytest.approx(100 * (6 / 7 * 4 / 5) ** 0.5)
    assert found.without_penalty[3] == 0.0
    assert found.brevity_penalty == 1.0
    assert "BLEU-1..4" in str(found)
    assert json.dumps(found.bleu)
