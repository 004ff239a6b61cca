"""Studies: a grid of jobs, what is measured of each, one table; they resume, and run on several processes.

axes.py       "plan.tp=1,2,4" -> a grid of points
figures.py    what is measured of one job, as plain numbers; measure.py makes them
run.py        tasks -> figures, on this process or several; finished ones are kept (journal.py)
paired.py     how often one job beats another, given what the cost model does not know of both
comparison.py a few jobs beside the best, with these probabilities
fleets/       "512xh200" as a cluster, prices by device, what fleets make of days or tokens
table.py      rows beside the best one: ratios, ties
sizes.py      a job on other numbers of GPUs, weak or strong scaling
onset.py      the size at which communication stops hiding, in closed form
"""
