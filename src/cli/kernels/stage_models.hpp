/// The stages as models of production kernels compute them, one function for each entry of the table in
/// model_kernels.hpp. Each is called when the stage itself has run, and replaces what it published.
#pragma once

#include "cli/kernels/kernel_call.hpp"

namespace dsv4::cli::kernel_stages {

// vLLM
void vllm_query_latent(const KernelCall& call);  ///< q.down
void vllm_query(const KernelCall& call);         ///< q.up
void vllm_window(const KernelCall& call);        ///< kv.window
void vllm_pool(const KernelCall& call);          ///< compress.pool, indexer.pool
void vllm_finish(const KernelCall& call);        ///< compress.finish, indexer.finish
void vllm_index_query(const KernelCall& call);   ///< indexer.query
void vllm_output(const KernelCall& call);        ///< output.project

// SGLang
void sglang_pool(const KernelCall& call);          ///< compress.pool, indexer.pool
void sglang_online_pool(const KernelCall& call);   ///< compress.pool, online state
void sglang_online_state(const KernelCall& call);  ///< compress.state, online state
void sglang_finish(const KernelCall& call);        ///< compress.finish, indexer.finish
void sglang_output(const KernelCall& call);        ///< output.project

// Libraries of both
void deepgemm_scores(const KernelCall& call);   ///< indexer.score
void vllm_attention(const KernelCall& call);    ///< attention.core
void sglang_attention(const KernelCall& call);  ///< attention.core

}  // namespace dsv4::cli::kernel_stages
