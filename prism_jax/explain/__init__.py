"""Why a step takes as long as it takes."""

from .explain import explain as explain
from .types import Explanation as Explanation, Timeline as Timeline
