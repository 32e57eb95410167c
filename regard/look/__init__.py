"""A model into pictures: record what it looks at, keep it as a trace, draw it, measure it, change it.

record      every attention's scores, weights and context while a block runs
Trace       one sentence as data; JSON in and out, pictures, pages, terminal
measure     entropy, coverage, diagonality and more for each head
change      what if a head were silent, a word hidden, the softmax sharper?
flow        how much of a word's influence goes through attention
reach       how far back a language model looks, and at which words
"""

from regard.look.assemble import add_probabilities, assemble
from regard.look.change import Changed, Force, Mask, SetRow, ShiftRow, Silence, Temperature, change, importance
from regard.look.contents import Attended, Beam, Node, Picture, Step
from regard.look.flow import Flow, draw_flows, flow
from regard.look.measure import Report, measure, report
from regard.look.pieces import Sentence, Token
from regard.look.reach import Reach, reach
from regard.look.record import Recorded, record
from regard.look.trace import Trace
from regard.look.words import Table, arrange

__all__ = [
    "Attended",
    "Beam",
    "Changed",
    "Flow",
    "Force",
    "Mask",
    "Node",
    "Picture",
    "Reach",
    "Recorded",
    "Report",
    "Sentence",
    "SetRow",
    "ShiftRow",
    "Silence",
    "Step",
    "Table",
    "Temperature",
    "Token",
    "Trace",
    "add_probabilities",
    "arrange",
    "assemble",
    "change",
    "draw_flows",
    "flow",
    "importance",
    "measure",
    "reach",
    "record",
    "report",
]
