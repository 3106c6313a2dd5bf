"""The main job of `lpsim demo`, in three parts that print nothing: cli.py tells what they found."""
