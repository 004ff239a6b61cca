"""What a row of a steps table leaves open and is taken for: each blank filled by one rule, and told as an assumption."""

from .assumption import Assumption as Assumption
from .check import rates_disagree as rates_disagree
from .complete import completed as completed
from .peers import Peers as Peers, peers_of as peers_of
