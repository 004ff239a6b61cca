"""From a schedule and its seconds to end times: levels, the max-plus engine, random numbers, members of a group."""
