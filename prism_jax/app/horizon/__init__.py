"""Use cases about the whole job: from the step to the day it is done."""
