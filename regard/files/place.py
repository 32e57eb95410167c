"""Place inline tags in a translation by word alignment.

This is the method of Bergamot (Firefox): the sentence is translated without tags, and a pair of tags goes around the
target words that are aligned to the source words inside it. Here every tag is written exactly once: if those words are
not contiguous, the pair goes around the run with the most of them and the fewest others. Nested pairs stay nested. A
single tag goes before the word that follows it in the source.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from regard.files.segment import SPACED, Aligned, Segment, Tag, as_it_is
from regard.text.sentences import Span, has_words, split_words, trim
from regard.text.visible import BLANKS


class Fragment(NamedTuple):
    """A part of the result: words of the translation, or a tag."""

    text: str
    tag: Tag | None = None


def space_breaks(fragments: list[Fragment]) -> list[Fragment]:
    """Move line breaks so that no line is empty. If there are fewer words than lines, breaks that are only white space
    (and marks of a quotation) are left out, and other ones (the times of a subtitle) come last."""
    breaks = [fragment for fragment in fragments if fragment.tag and fragment.tag.kind == "break"]
    if not breaks:
        return fragments
    pieces: list[tuple[Fragment, int]] = []  # with the number of the word that it begins, or -1
    wanted: list[int] = []  # the word before which each break goes
    count, apart = 0, True  # words so far, and whether white space or a break came last
    for fragment in fragments:
        if fragment.tag and fragment.tag.kind == "break":
            wanted.append(count)
            apart = True
            continue
        for piece in [fragment] if fragment.tag else map(Fragment, _PIECES.findall(fragment.text)):
            visible = piece.tag.kind in ("word", "argument") if piece.tag else bool(piece.text.strip())
            begins = visible and (apart or piece.tag is not None)
            pieces.append((piece, count if begins else -1))
            count += begins
            apart = not visible if piece.tag is None else apart and not visible
    room = max(0, count - 1)
    if len(breaks) > room:
        hard = [one for one in breaks if one.text.strip(" \t\r\n\\>")]
        breaks, last = hard[:room], hard[room:]
        wanted = list(range(1, len(breaks) + 1))
    else:
        last = []
    for number in range(len(breaks)):
        wanted[number] = max(wanted[number], 1, wanted[number - 1] + 1 if number else 1)
    for number in reversed(range(len(breaks))):
        wanted[number] = min(wanted[number], count - (len(breaks) - number))
    before = dict(zip(wanted, breaks, strict=True))
    result: list[Fragment] = []
    for piece, word in pieces:
        if word in before:
            at = len(result)
            while at and (tag := result[at - 1].tag) and tag.kind == "open":
                at -= 1
            result.insert(at, before[word])
        result.append(piece)
    return result + last


def write(fragments: list[Fragment], escape: Callable[[str], str]) -> str:
    """The text of the fragments, with white space around the tags that had it in the source."""
    following = ["" for _ in fragments]  # the next character of the words
    apart_next = [False for _ in fragments]  # whether a tag with white space before it comes next, or within pairs
    after, wanted = "", False
    for number in range(len(fragments) - 1, -1, -1):
        following[number], apart_next[number] = after, wanted
        text, tag = fragments[number]
        if tag is None:
            after, wanted = text[:1] or after, wanted and not text
        elif tag.kind == "close":
            wanted = False
        elif tag.kind != "open":
            after, wanted = "%", tag.before and tag.kind != "break"
    parts: list[str] = []
    last = ""
    held = ""  # the space after a tag, which goes behind the tags that are closed there
    for number, ((text, tag), ahead) in enumerate(zip(fragments, following, strict=True)):
        if tag is None:
            if last == "\n" and text[:1] == " ":  # a break replaces the space
                text = text[1:]
            if text:
                parts += [held, escape(text)]
                held, last = "", text[-1]
        elif tag.kind == "close":
            parts.append(tag.raw)
        elif tag.kind == "open":
            if apart_next[number] and last and not last.isspace():
                held = last = " "
            parts += [held, tag.raw]
            held = ""
        elif tag.kind == "break":
            if last == " " and not held:
                parts[-1] = parts[-1].rstrip(" ")
            parts.append(tag.raw)
            held, last = "", "\n"
        else:
            apart = tag.before or tag.after
            if last == " " and _ends_a_word(tag):
                if not held:
                    parts[-1] = parts[-1].rstrip(" ")
                held, last = "", "."
                apart = False
            if last and not last.isspace() and (tag.before or (apart and last.isalnum())):
                held = " "
            parts += [held, tag.raw]
            held, last = "", "%"
            if tag.kind == "void" and not tag.after and number + 1 < len(fragments) and fragments[number + 1].text:
                apart = apart and fragments[number + 1].tag is not None  # written at the word that it begins
            if ahead and not ahead.isspace() and (tag.after or (apart and ahead.isalnum())):
                held = last = " "
    return "".join(parts)


_PIECES = re.compile(r"\s+|\S+")
Range = tuple[int, int]  # of target words [first, last)


@dataclass
class Node:
    """A pair of tags (or the whole segment), its content, and the target words that it encloses."""

    source: Span
    open: Tag | None = None
    close: Tag | None = None
    inside: "list[Node]" = field(default_factory=list)
    single: "list[Tag]" = field(default_factory=list)
    words: Range = (0, 0)


def place_tags(segment: Segment, found: Aligned) -> str:
    """The inner text of the translation: its words escaped, with every tag of the segment exactly once, well nested.

    A translation that equals its source is written like the source.
    """
    if found.text == segment.text:
        return segment.inner
    return write(_fragments(segment, found), segment.escape)


def spell(segment: Segment, found: Aligned | None = None, escape: Callable[[str], str] = as_it_is) -> str:
    """The words of a segment (or of its translation) with placeholders, without markup.

    Placeholders are in the same positions as with `place_tags`, so that a translated file and its memory agree.
    """
    if found is not None:
        fragments = _fragments(segment, found)
    else:
        fragments, reached = [], 0
        for tag in segment.tags:
            fragments += [Fragment(segment.text[reached : tag.at]), Fragment(tag.raw, tag)]
            reached = tag.at
        fragments.append(Fragment(segment.text[reached:]))
    return write([one for one in fragments if one.tag is None or one.tag.kind in ("word", "argument")], escape)


def _fragments(segment: Segment, found: Aligned) -> list[Fragment]:
    """The translation with every tag of the segment."""
    if not segment.tags:
        return [Fragment(found.text)]
    # Placeholders that are identified by their order stay in the order of the source, and so do the times of subtitles.
    kept = {kind: iter([tag for tag in segment.tags if tag.kind == kind]) for kind in ("argument", "break")}
    placed: list[Fragment] = []
    for text, tag in Placer(segment, found).place():
        tag = next(kept[tag.kind]) if tag and tag.kind in kept else tag
        placed.append(Fragment(tag.raw if tag else text, tag))
    return space_breaks(placed)


def _ends_a_word(tag: Tag) -> bool:
    return tag.kind == "void" and tag.after and not tag.before


def _in_parts(segment: Segment, text: str, links: list[tuple[Span, Span]]) -> tuple[list[tuple[Span, Span]], list[int]]:
    """The links (target, source) with one for each part of a word that has tags within it and is copied, as of H and 2
    and O, so that the tags stay there; and the places in the source where such parts meet."""
    inside = {tag.at for tag in segment.tags if re.fullmatch(r"\w\w", segment.text[max(0, tag.at - 1) : tag.at + 1])}
    places, found, cuts = sorted(inside), list[tuple[Span, Span]](), set[int]()
    for target, source in links:
        parts, own, copy = _cut(source, places), segment.text[slice(*source)], text[slice(*target)]
        if len(parts) > 1 and len(own) == len(copy) and own.lower() == copy.lower():
            ahead = target[0] - source[0]
            found += [((start + ahead, end + ahead), (start, end)) for start, end in parts]
            cuts.update(start for start, _ in parts[1:])
        else:
            found.append((target, source))
    return found, sorted(cuts)


def _cut(span: Span, places: Sequence[int]) -> list[Span]:
    """The parts of a span between these places, which are sorted."""
    return list(pairwise([span[0], *places[bisect_right(places, span[0]) : bisect_left(places, span[1])], span[1]]))


class Placer:
    """The words of both sides, and their links."""

    def __init__(self, segment: Segment, found: Aligned) -> None:
        self.segment, self.tags, self.text = segment, segment.tags, found.text
        links = sorted((trim(found.text, target), trim(segment.text, source)) for source, target, _ in found.links)
        links, cuts = _in_parts(segment, found.text, links)
        self.cuts = set(cuts)  # where the parts of a word meet in the source
        words = split_words(segment.text, (0, len(segment.text)))
        self.source = [part for word in words for part in _cut(word, cuts)]
        self.target: list[Span] = []  # words: the spans of the links, and the words in between
        self.linked: list[Span | None] = []  # the source span that each is linked to
        self.later: set[int] = set()  # the target words that go on with a word in parts
        reached = 0
        for (start, end), span in [*links, ((len(self.text), len(self.text)), (0, 0))]:
            if start >= reached:
                between = split_words(self.text, (reached, start))
                self.target += between
                self.linked += [None] * len(between)
                if start < end:
                    if span[0] in self.cuts:
                        self.later.add(len(self.target))
                    self.target.append((start, end))
                    self.linked.append(span)
                reached = end
        self.starts = [start for start, _ in self.source]
        self.bounds: dict[Span, Range] = {}  # source sentence -> its target words
        firsts = [start for start, _ in self.target]
        self.begun = set(firsts)  # where a target word begins
        for source, (start, end) in found.sentences:
            first, last = bisect_left(firsts, start), bisect_left(firsts, end)
            self.bounds[source] = first, last
        self.sentences = sorted(self.bounds)
        self.linking: dict[int, list[int]] = {}  # source word -> linked target words
        self.others = [0]  # number of linked words before each target word
        for number, linked in enumerate(self.linked):
            if linked is not None:
                for word in range(bisect_left(self.starts, linked[0]), bisect_left(self.starts, linked[1])):
                    self.linking.setdefault(word, []).append(number)
            self.others.append(self.others[-1] + (linked is not None))
        self.words = sorted(self.linking)

    def place(self) -> list[Fragment]:
        """The translation with its tags."""
        root = Node((0, len(self.text)), words=(0, len(self.target)))
        path = [root]
        for tag in self.tags:
            if tag.kind == "open":
                partner = self.tags[tag.partner]
                path[-1].inside.append(Node((tag.at, partner.at), tag, partner))
                path.append(path[-1].inside[-1])
            elif tag.kind == "close":
                path.pop()
            else:
                path[-1].single.append(tag)
        waiting = [root]
        while waiting:  # choose the target words of every pair, in each node the longest pair first
            node = waiting.pop()
            free, empty = [node.words], []
            for pair in sorted(node.inside, key=lambda pair: pair.source[0] - pair.source[1]):
                found = self._best(pair, free)
                if found is None:
                    empty.append(pair)
                    continue
                first, last = pair.words = found
                parts = [part for a, b in free for part in ((a, min(b, first)), (max(a, last), b))]
                free = [part for part in parts if part[0] < part[1]]
            for pair in empty:  # at the expected position, outside of all other pairs
                at = pair.source[0]
                pair.words = self._outside(self._gap(at, node.words), at, node)
            waiting += node.inside
        fragments: list[Fragment] = []
        end = self._emit(root, fragments, 0, len(self.text))
        return [*fragments, Fragment(self.text[end:])]

    # --- pairs

    def _best(self, pair: Node, free: Sequence[Range]) -> Range | None:
        """The run of words within `free` with the most words of the pair and the fewest others, if there is one."""
        best, chosen = 0, None
        belonging = self._belonging(pair.source)
        for first, last in free:
            total, begin, before = -1, first, first
            for number in belonging[bisect_left(belonging, first) : bisect_left(belonging, last)]:
                # Words in between that are linked elsewhere count against the run.
                total -= self.others[number] - self.others[before]
                if total < 0:
                    total, begin = 0, number
                total, before = total + 1, number + 1
                if total > best or (chosen and chosen[0] == begin and total == best):  # prefer the longer of equal runs
                    best, chosen = total, (begin, number + 1)
        if chosen is None:
            return None
        begin, end = chosen
        while end - begin > 1 and self._elided(end - 1):
            end -= 1
        # Punctuation at its ends is inside only if the source has some there.
        opens, closes = (self.segment.text[at : at + 1] for at in (pair.source[0], pair.source[1] - 1))
        while end - begin > 1 and closes.isalnum() and not has_words(self.text[slice(*self.target[end - 1])]):
            end -= 1
        while end - begin > 1 and opens.isalnum() and not has_words(self.text[slice(*self.target[begin])]):
            begin += 1
        return begin, end

    def _belonging(self, source: Span) -> list[int]:
        """The target words that are linked to words of a span, and all those of the sentences within it."""
        found: set[int] = set()
        for place in range(bisect_left(self.sentences, (source[0], 0)), len(self.sentences)):
            if self.sentences[place][1] > source[1]:
                break
            found.update(range(*self.bounds[self.sentences[place]]))
        first = max(0, bisect_right(self.starts, source[0]) - 1)
        for word in range(first, bisect_left(self.starts, source[1])):
            for number in self.linking.get(word, ()):
                start, end = self.linked[number] or (0, 0)
                if any(start < cut < end and cut in self.cuts for cut in source):  # an article of a word in parts
                    continue
                shared = min(source[1], end) - max(source[0], start)
                # At least half of the target word's source; a span within a word counts as the word.
                if shared > 0 and (2 * shared >= end - start or shared == source[1] - source[0]):
                    found.add(number)
        return sorted(found)

    # --- single tags

    def _gap(self, at: int, within: Range) -> int:
        """The target word, within a range, before which to place a tag at `at` in the source."""
        after = bisect_left(self.starts, at)  # the next source word
        if after == 0:
            return within[0]
        if after == len(self.source):
            return within[1]
        ahead, behind = self.linking.get(after, [None])[0], self.linking.get(after - 1, [None])[-1]
        word = self.segment.text[self.source[after][0]].isalnum()
        if ahead is not None and word:
            gap = ahead
        elif behind is not None and has_words(self.text[slice(*self.target[behind])]):
            gap = behind + 1
        elif not word and (closing := self._closing(after)) is not None:
            gap = closing
        elif ahead is not None:
            gap = ahead
        else:
            near = bisect_left(self.words, after)
            gap = self.linking[self.words[near]][0] if near < len(self.words) else within[1]
        while within[0] < gap < len(self.target) and self._elided(gap - 1):
            gap -= 1
        return min(max(gap, within[0]), within[1])

    def _after(self, tag: Tag, within: Range) -> int:
        """As `_gap`; a footnote and other tags that only the following word is apart from stay at the previous one."""
        behind = self.linking.get(bisect_left(self.starts, tag.at) - 1) if _ends_a_word(tag) else None
        return min(max(behind[-1] + 1, within[0]), within[1]) if behind else self._gap(tag.at, within)

    def _elided(self, number: int) -> bool:
        """Whether a target word is elided (n', l'): it belongs to the word that follows it."""
        after = self.target[number][1]
        return self.text[after - 1] in "'’" and after in self.begun

    def _closing(self, after: int) -> int | None:
        """The first word of a target sentence's closing punctuation, if the source has only that from `after` on."""
        start = self.source[after][0]
        number = bisect_right(self.sentences, (start, len(self.segment.text))) - 1
        if number < 0 or has_words(self.segment.text[start : self.sentences[number][1]]):
            return None
        first, last = self.bounds[self.sentences[number]]
        while last > first and not has_words(self.text[slice(*self.target[last - 1])]):
            last -= 1
        return last

    def _outside(self, gap: int, at: int, parent: Node) -> Range:
        """The gap, moved out of the pairs that it would split, to the same side as in the source."""
        for pair in parent.inside:
            if pair.words[0] < gap < pair.words[1]:
                gap = pair.words[1] if at >= pair.source[1] else pair.words[0]
        return gap, gap

    def _forward(self, gap: int, parent: Node) -> int:
        """The gap, moved on until it splits neither a word in parts nor a pair."""
        ends = {at: pair.words[1] for pair in parent.inside for at in range(pair.words[0] + 1, pair.words[1])}
        while gap in ends or (gap in self.later and gap < parent.words[1]):
            gap = ends.get(gap, gap + 1)
        return gap

    # --- the result

    def _emit(self, node: Node, fragments: list[Fragment], at: int, limit: int) -> int:
        """Append the text from `at` to a node, and the node: its words and content, between its tags. It reaches up to
        `limit` at most; the result is where it ends.
        """
        inside: list[tuple[Range, Node | Tag]] = [(pair.words, pair) for pair in node.inside]
        reached = node.words[0]
        for tag in node.single:
            own, _ = self._outside(self._after(tag, node.words), tag.at, node)
            gap = own
            if tag.kind != "word":
                gap, _ = self._outside(max(gap, reached), tag.at, node)
                gap = max(gap, reached)
                if gap in self.later and (gap != own or tag.at not in self.cuts):
                    gap = self._forward(gap, node)
                reached = gap
            inside.append(((gap, gap), tag))
        # At the same word: single tags in the order of the source, then empty pairs, then the pair around words.
        inside.sort(key=lambda one: (one[0], isinstance(one[1], Node)))
        first = node.words[0]
        begins_empty = bool(inside) and inside[0][0] == (first, first)  # with a tag, which may go before a space
        start = self._extent((first, first) if begins_empty else node.words)[0]
        start, end = max(at, min(start, limit)), min(self._extent(node.words)[1], limit)
        fragments.append(Fragment(self.text[at:start]))
        fragments += [Fragment(node.open.raw, node.open)] if node.open else []
        at = start
        for words, one in inside:
            if isinstance(one, Node):
                at = self._emit(one, fragments, at, end)
                continue
            start = max(at, min(self._extent(words)[0], end))
            fragments += [Fragment(self.text[at:start]), Fragment(one.raw, one)]
            at = start
        fragments.append(Fragment(self.text[at:end]))
        fragments += [Fragment(node.close.raw, node.close)] if node.close else []
        return max(at, end)

    def _extent(self, words: Range) -> Span:
        """The span of a range of target words; for an empty range, the start of the next word, with the space of a mark
        that has one before it, as in French."""
        first, last = words
        start = self.target[first][0] if first < len(self.target) else len(self.text)
        if first < last:
            return start, self.target[last - 1][1]
        if self.text[start : start + 1] in SPACED:
            start = len(self.text[:start].rstrip(BLANKS))
        return start, start
