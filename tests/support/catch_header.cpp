/// Carries the precompiled header of all test programs.
