//! Crowds, kills and races: locks on their worst days, judged by the acknowledged replies alone.
