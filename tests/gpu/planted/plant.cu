#include "gpu/cuda_engine.cuh"

#include "plant.hpp"

namespace dsv4::gpu {

void planted_compress_pool(const StageCall& call);
void planted_indexer_score(const StageCall& call);
void planted_output_project(const StageCall& call);

void plant(Engine& engine, std::string_view kernel) {
  auto& cuda = dynamic_cast<CudaEngine&>(engine);
  if (kernel == "compress_pool") {
    cuda.set_stage(Stage::compress_pool, planted_compress_pool);
  } else if (kernel == "indexer_score") {
    cuda.set_stage(Stage::indexer_score, planted_indexer_score);
  } else {
    cuda.set_stage(Stage::output_project, planted_output_project);
  }
}

}  // namespace dsv4::gpu
