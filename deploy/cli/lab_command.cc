// kvring lab: the essay's experiments.
#include "deploy/cli/lab_command.h"

#include <thread>

namespace kvring::cli {

void AddLabOptions(CLI::App& command, LabOptions& options) {
  options.model.model = DefaultModelPath();
  options.model.threads = static_cast<int32_t>(std::thread::hardware_concurrency());
  command
      .add_option("--model", options.model.model,
                  "GGUF file, Hugging Face directory, or gpt2-124m (random weights)")
      ->capture_default_str();
  command.add_option("--device", options.device)->check(CLI::IsMember({"cpu"}))->capture_default_str();
  command
      .add_option("--dtype", options.model.dtype,
                  "of keys, values and arithmetic: f32, or bf16 with the file's own 4- and 8-bit weights")
      ->check(CLI::IsMember({"f32", "bf16"}))
      ->capture_default_str();
  command.add_option("--threads", options.model.threads)->check(CLI::Range(1, 256))->capture_default_str();
  command.add_option("--lengths", options.lengths, "numbers of generated tokens, ascending")
      ->delimiter(',')
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command.add_flag("--json", options.json);
}

void AddLab(CLI::App& app, Action& action) {
  CLI::App* lab = app.add_subcommand("lab", "The essay's experiments: what a KV cache costs and saves");
  lab->require_subcommand(1);
  lab->footer(
      "Examples:\n  kvring lab measured\n  kvring lab timing --model gpt2-124m --lengths 32,64,128,256,512");
  AddLabMeasured(*lab, action);
  AddLabTiming(*lab, action);
}

}  // namespace kvring::cli
