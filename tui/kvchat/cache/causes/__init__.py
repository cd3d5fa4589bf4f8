"""Why a turn was read again: evidence in, one finding out."""
