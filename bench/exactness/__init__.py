"""Proof that parking changes no token: forced parks, explicit parks beside others, and random schedules."""
