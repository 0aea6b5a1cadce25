"""The drills, by what they injure; `streams/drills/catalogue.py` lists them all."""
