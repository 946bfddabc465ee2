/// Catch2 v2 (Debian 12) and v3 (Ubuntu 24.04) behind one include.
#pragma once

#ifdef DSV4_CATCH2_V2
#include <catch2/catch.hpp>
#else
#include <catch2/catch_all.hpp>
#endif
