"""The figures of turns: what each cost, why tokens were wasted, speed, and sums over many. Pure: no I/O."""
