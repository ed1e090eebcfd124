// Executor: runs one engine step on a model. The engine (pure) fills a Batch; the CPU executor
// (replica/model), the CUDA executor and the simulator's timed executor carry it out. The KV pool belongs to
// the executor: block b's keys and values live there, addressed by the block tables that the engine hands in.
// Called from the engine's thread only.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "common/ids.h"
#include "replica/kv/block_table.h"

namespace kvring::replica {

/// One sequence's share of a step: `tokens` are computed at positions first_position, first_position + 1, …,
/// and their keys and values written through `block_table` (position p lies in block_table[p / block_size],
/// slot p % block_size). Positions [0, first_position) are already there; entries that the executor's window
/// has passed are kNullBlock (replica/kv/block_table.h) and are not read.
struct SequenceStep {
  SequenceId id;
  std::span<const TokenId> tokens;
  int32_t first_position = 0;
  std::span<const BlockId> block_table;
  /// Logits are wanted for tokens[logits_from …]; tokens.size() - 1 for a sequence that samples,
  /// tokens.size() for none, 0 when the logits of every token are wanted (echo with logprobs).
  int32_t logits_from = 0;
};

struct Batch {
  std::vector<BlockCopy> copies;
  std::vector<SequenceStep> steps;
};

/// Rows of logits, in the order of the batch's steps and, inside a step, of its tokens from logits_from on.
/// An executor that samples by itself (the timed one) leaves `logits` empty and gives one token per row
/// instead.
struct StepOutput {
  std::span<const float> logits;  // rows x vocab_size, valid until the next Execute
  std::vector<TokenId> tokens;    // rows, or empty
};

struct ExecutorLimits {
  int32_t vocab_size = 0;
  int32_t context_length = 0;  // longest sequence the model takes, prompt and output
  int32_t block_size = 0;      // tokens per KV block
  int32_t num_blocks = 0;      // blocks in the KV pool
  int64_t kv_bytes_per_token = 0;
  /// Tokens that a position sees at most in any layer, itself included; 0: all before it.
  int32_t window = 0;
};

class Executor {
 public:
  virtual ~Executor() = default;
  virtual const ExecutorLimits& limits() const = 0;
  /// Computes the batch. An error is the device's (out of memory, lost): the engine ends the batch's
  /// sequences with it.
  virtual absl::Status Execute(const Batch& batch, StepOutput& output) = 0;
};

}  // namespace kvring::replica
