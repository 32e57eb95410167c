"""Inspect attention: record it, keep it as a trace, draw it, measure it, change it.

record      every attention's scores, weights and context while a block runs
Trace       one sentence as data; JSON in and out, pictures, pages, terminal
measure     entropy, coverage, diagonality and more for each head
change      what-ifs: silence a head, mask a word, sharpen the softmax
attribution from which source words a target word came, by ten methods
flow        how much of a word's influence goes through attention
reach       how far back a language model attends, and to which words
"""

from regard.look.attribution import Attribution
from regard.look.change import Force, Mask, SetRow, ShiftRow, Silence, Temperature, change, importance
from regard.look.flow import draw_flows, flow
from regard.look.measure import measure, reach, report
from regard.look.record import record
from regard.look.table import Show
from regard.look.tokens import Side, Token
from regard.look.trace import Trace
from regard.look.trace_data import Attended, Beam, BeamNode, Picture

__all__ = [
    "Attended", "Attribution", "Beam", "BeamNode", "Force", "Mask", "Picture", "SetRow", "ShiftRow", "Show", "Side",
    "Silence", "Temperature", "Token", "Trace", "change", "draw_flows", "flow", "importance", "measure", "reach",
    "record", "report",
]  # fmt: skip
