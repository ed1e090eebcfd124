// Value: what a template expression can be. Lists and dicts are shared and immutable, but for namespaces.
// Dicts keep the order of their keys. Lists and dicts know how deeply they nest and how much there is to
// print of them, parts that are shared counted each time: what bounds work on them. Value semantics; not
// thread-safe while shared.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "replica/model/jinja/text.h"

namespace kvring::replica::jinja {

class Value;
struct MacroNode;

using List = std::vector<Value>;
using Dict = std::vector<std::pair<std::string, Value>>;

struct Undefined {};
struct None {};
/// A function of the language by its name, or a method bound to `self`.
struct Function {
  std::string name;
  std::shared_ptr<Value> self;  // shared: values are copied freely
};
struct Macro {
  const MacroNode* node;
};
struct Namespace {
  std::shared_ptr<Dict> fields;  // the one mutable thing of the language: shared by design
};

/// A list or dict as it is shared.
template <class Items>
struct Shared {
  Items items;
  int depth;
  int64_t weight;
};

class Value {
 public:
  using Data = std::variant<Undefined, None, bool, int64_t, double, Text, std::shared_ptr<const Shared<List>>,
                            std::shared_ptr<const Shared<Dict>>, Namespace, Function, Macro>;

  Value() = default;
  template <class T>
  requires(!std::is_same_v<std::decay_t<T>, Value> && std::is_constructible_v<Data, T>) Value(T&& data)
      : data_(std::forward<T>(data)) {}  // NOLINT: values convert from what they hold
  static Value String(std::string text) { return Value(Text(std::move(text))); }
  static Value OfList(List list);
  static Value OfDict(Dict dict);

  template <class T>
  bool Is() const {
    return std::holds_alternative<T>(data_);
  }
  bool IsList() const { return Is<std::shared_ptr<const Shared<List>>>(); }
  bool IsDict() const { return Is<std::shared_ptr<const Shared<Dict>>>(); }
  bool IsNumber() const { return Is<bool>() || Is<int64_t>() || Is<double>(); }

  template <class T>
  const T& As() const {
    return std::get<T>(data_);
  }
  const List& list() const { return As<std::shared_ptr<const Shared<List>>>()->items; }
  const Dict& dict() const { return As<std::shared_ptr<const Shared<Dict>>>()->items; }
  const std::string& bytes() const { return As<Text>().bytes(); }
  double AsDouble() const;
  /// bool counts as 0 or 1; only for bool and int64_t.
  int64_t AsInt() const;

  /// Levels of lists, dicts and bound methods below this one, itself included; 0: none.
  int Depth() const;
  /// Bytes of its text and about 32 for each value in it: the work of printing, copying or comparing it.
  int64_t Weight() const;

  bool Truthy() const;
  /// Equality of Python: numbers by value, containers by content.
  bool Equals(const Value& other) const;
  std::string_view TypeName() const;

 private:
  Data data_;
};

/// The entry of `key`, or nullptr.
const Value* FindKey(const Dict& dict, std::string_view key);
/// str(): how a value is written into the output. Trust follows the parts.
Text ToText(const Value& value);
/// JSON with ", " and ": " as Python's json.dumps writes it; `indent` < 0: one line. Untrusted if any part
/// is. Ends soon after max_bytes, cut.
Text ToJson(const Value& value, int indent, size_t max_bytes);

}  // namespace kvring::replica::jinja
