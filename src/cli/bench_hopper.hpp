/// `bench --hopper`: how fast the model of Hopper's tensor cores multiplies on one core.
#pragma once

namespace dsv4::cli {

/// Prints products a second for bf16 and e4m3, each instruction set that runs here beside the scalar step;
/// checks while at it that all give the same bits. Returns an exit code.
int bench_hopper(bool json);

}  // namespace dsv4::cli
