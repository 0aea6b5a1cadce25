"""Commands for operators: what is wrong with an application, open transactions, replays."""
