// kvring why: one request's story: candidates, costs, what was predicted and what the engine reported.
#include <boost/json.hpp>
#include <cstdio>
#include <memory>

#include "absl/strings/str_cat.h"
#include "deploy/cli/client.h"
#include "deploy/cli/command.h"

namespace kvring::cli {
namespace {

struct Options {
  RouterAddress router;
  std::string id;
  bool json = false;
};

// Two levels of "key: value"; lists of objects one line each.
void Print(const boost::json::object& record) {
  for (const auto& [key, value] : record) {
    if (!value.is_array()) {
      std::printf("%-26s %s\n", std::string(key).c_str(),
                  value.is_string() ? std::string(value.get_string()).c_str()
                                    : boost::json::serialize(value).c_str());
      continue;
    }
    std::printf("%s\n", std::string(key).c_str());
    for (const auto& element : value.get_array())
      std::printf("  %s\n", boost::json::serialize(element).c_str());
  }
}

int Run(const Options& options) {
  const auto why = Client(options.router).Why(options.id);
  if (!why.ok()) return Fail(why.status());
  boost::system::error_code error;
  const auto record = boost::json::parse(why->json(), error);
  if (error || !record.is_object())
    return Fail(absl::StrCat(options.router.address, ": the answer is no JSON object"));
  if (options.json) {
    std::printf("%s\n", why->json().c_str());
  } else {
    Print(record.get_object());
  }
  return 0;
}

}  // namespace

void AddWhy(CLI::App& app, Action& action) {
  auto options = std::make_shared<Options>();  // shared by the parser and the action, whichever lives longer
  CLI::App* command = app.add_subcommand("why", "Why a request went where it went");
  command->add_option("id", options->id, "x-request-id of an answer")->required();
  AddRouterOptions(*command, options->router);
  command->add_flag("--json", options->json);
  command->footer("Examples:\n  kvring why 4f2a90d1c3b7e586\n  kvring why my-request-17 --json");
  command->callback([options, &action] { action = [options] { return Run(*options); }; });
}

}  // namespace kvring::cli
