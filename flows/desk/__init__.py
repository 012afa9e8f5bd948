"""The desk: a Prefect server with everything beside it that is needed for months, as one thing that stays.

processes/ is what runs, server/ what our server adds to Prefect's, objects/ what is kept on it, watch/ who looks after
the runs, doctor/ who looks after the desk.
"""
