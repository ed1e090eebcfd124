#include "replica/model/jinja/value.h"

#include <charconv>
#include <cmath>

#include "common/json_text.h"

namespace kvring::replica::jinja {
namespace {

std::string FormatDouble(double value) {
  char buffer[32];
  std::string out(buffer, std::to_chars(buffer, buffer + sizeof(buffer), value).ptr);
  if (std::isfinite(value) && out.find_first_of(".e") == std::string::npos) out += ".0";
  return out;
}

// Python's repr of a string inside a container.
Text Repr(const Text& text) {
  Text out(std::string("'"));
  out.Append(text);
  out.Append(Text(std::string("'")));
  return out;
}

Text Inner(const Value& value) { return value.Is<Text>() ? Repr(value.As<Text>()) : ToText(value); }

Text ListText(const List& list) {
  Text out(std::string("["));
  for (size_t i = 0; i < list.size(); ++i) {
    if (i > 0) out.Append(Text(std::string(", ")));
    out.Append(Inner(list[i]));
  }
  out.Append(Text(std::string("]")));
  return out;
}

Text DictText(const Dict& dict) {
  Text out(std::string("{"));
  for (size_t i = 0; i < dict.size(); ++i) {
    out.Append(Text((i > 0 ? ", '" : "'") + dict[i].first + "': "));
    out.Append(Inner(dict[i].second));
  }
  out.Append(Text(std::string("}")));
  return out;
}

constexpr int64_t kValueWeight = 32;

class JsonWriter {
 public:
  JsonWriter(int indent, size_t max_bytes) : indent_(indent), max_bytes_(max_bytes) {}

  void Write(const Value& value, int depth) {
    if (out_.size() > max_bytes_) return;
    if (value.Is<Text>()) {
      Note(value.As<Text>());
      AppendJsonString(out_, value.bytes());
    } else if (value.IsList()) {
      Container('[', ']', value.list().size(), depth, [&](size_t i) { Write(value.list()[i], depth + 1); });
    } else if (value.IsDict()) {
      Container('{', '}', value.dict().size(), depth, [&](size_t i) {
        AppendJsonString(out_, value.dict()[i].first);
        out_ += ": ";
        Write(value.dict()[i].second, depth + 1);
      });
    } else if (value.Is<bool>()) {
      out_ += value.As<bool>() ? "true" : "false";
    } else if (value.Is<None>() || value.Is<Undefined>()) {
      out_ += "null";
    } else {
      out_ += ToText(value).bytes();
    }
  }

  Text Take() { return user_ ? Text::DerivedFromUser(std::move(out_), origin_end_) : Text(std::move(out_)); }

 private:
  void Note(const Text& text) {
    user_ |= !text.trusted();
    origin_end_ = std::max(origin_end_, text.OriginEnd());
  }

  template <class Element>
  void Container(char open, char close, size_t size, int depth, Element element) {
    out_ += open;
    for (size_t i = 0; i < size; ++i) {
      if (i > 0) out_ += indent_ < 0 ? ", " : ",";
      NewLine(depth + 1);
      element(i);
    }
    if (size > 0) NewLine(depth);
    out_ += close;
  }

  void NewLine(int depth) {
    if (indent_ < 0) return;
    out_ += '\n';
    out_.append(static_cast<size_t>(indent_ * depth), ' ');
  }

  int indent_;
  size_t max_bytes_;
  std::string out_;
  bool user_ = false;
  size_t origin_end_ = 0;
};

}  // namespace

double Value::AsDouble() const { return Is<double>() ? As<double>() : static_cast<double>(AsInt()); }

int64_t Value::AsInt() const { return Is<bool>() ? As<bool>() : As<int64_t>(); }

Value Value::OfList(List list) {
  int depth = 0;
  int64_t weight = kValueWeight;
  for (const Value& value : list) {
    depth = std::max(depth, value.Depth());
    weight += value.Weight();
  }
  return Value(std::make_shared<const Shared<List>>(Shared<List>{std::move(list), depth + 1, weight}));
}

Value Value::OfDict(Dict dict) {
  int depth = 0;
  int64_t weight = kValueWeight;
  for (const auto& [key, value] : dict) {
    depth = std::max(depth, value.Depth());
    weight += value.Weight() + static_cast<int64_t>(key.size());
  }
  return Value(std::make_shared<const Shared<Dict>>(Shared<Dict>{std::move(dict), depth + 1, weight}));
}

int Value::Depth() const {
  if (IsList()) return As<std::shared_ptr<const Shared<List>>>()->depth;
  if (IsDict()) return As<std::shared_ptr<const Shared<Dict>>>()->depth;
  const bool bound = Is<Function>() && As<Function>().self != nullptr;
  return bound ? As<Function>().self->Depth() + 1 : 0;
}

int64_t Value::Weight() const {
  if (IsList()) return As<std::shared_ptr<const Shared<List>>>()->weight;
  if (IsDict()) return As<std::shared_ptr<const Shared<Dict>>>()->weight;
  return kValueWeight + (Is<Text>() ? static_cast<int64_t>(bytes().size()) : 0);
}

bool Value::Truthy() const {
  if (Is<Undefined>() || Is<None>()) return false;
  if (IsNumber()) return AsDouble() != 0;
  if (Is<Text>()) return !bytes().empty();
  if (IsList()) return !list().empty();
  if (IsDict()) return !dict().empty();
  return true;
}

bool Value::Equals(const Value& other) const {
  if (IsNumber() && other.IsNumber()) return AsDouble() == other.AsDouble();
  if (data_.index() != other.data_.index()) return false;
  if (Is<Text>()) return bytes() == other.bytes();
  if (IsList()) {
    if (list().size() != other.list().size()) return false;
    for (size_t i = 0; i < list().size(); ++i) {
      if (!list()[i].Equals(other.list()[i])) return false;
    }
    return true;
  }
  if (IsDict()) {
    if (dict().size() != other.dict().size()) return false;
    for (const auto& [key, value] : dict()) {
      const Value* theirs = FindKey(other.dict(), key);
      if (theirs == nullptr || !value.Equals(*theirs)) return false;
    }
    return true;
  }
  return Is<None>() || Is<Undefined>();
}

std::string_view Value::TypeName() const {
  static constexpr std::string_view kNames[] = {"undefined", "none",     "boolean", "integer",
                                                "float",     "string",   "list",    "dict",
                                                "namespace", "function", "macro"};
  return kNames[data_.index()];
}

const Value* FindKey(const Dict& dict, std::string_view key) {
  for (const auto& [name, value] : dict) {
    if (name == key) return &value;
  }
  return nullptr;
}

Text ToText(const Value& value) {
  if (value.Is<Text>()) return value.As<Text>();
  if (value.Is<Undefined>()) return Text();
  if (value.Is<None>()) return Text(std::string("None"));
  if (value.Is<bool>()) return Text(std::string(value.As<bool>() ? "True" : "False"));
  if (value.Is<int64_t>()) return Text(std::to_string(value.As<int64_t>()));
  if (value.Is<double>()) return Text(FormatDouble(value.As<double>()));
  if (value.IsList()) return ListText(value.list());
  if (value.IsDict()) return DictText(value.dict());
  return Text("<" + std::string(value.TypeName()) + ">");
}

Text ToJson(const Value& value, int indent, size_t max_bytes) {
  JsonWriter writer(indent, max_bytes);
  writer.Write(value, 0);
  return writer.Take();
}

}  // namespace kvring::replica::jinja
