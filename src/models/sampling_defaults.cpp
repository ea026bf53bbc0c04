#include "models/sampling_defaults.h"

#include <fmt/format.h>

#include <cctype>
#include <cmath>
#include <limits>
#include <string_view>

#include "base/check.h"
#include "base/log.h"
#include "models/gguf_reader.h"

namespace weft {
namespace {

// What the makers of a family recommend (docs/models.md has the sources). The first line that fits counts.
struct Family {
  std::string_view name;
  std::string_view architecture;
  std::string_view word;  // a word of the model's name, whatever version follows after a dot; "": any name
  std::string_view part;  // a text somewhere in the name, too; "": any name
  SamplingParams params;
  float repetition = 1.f;
};
constexpr Family kFamilies[] = {
    {"SmolLM2", "llama", "smollm2", "", {.temperature = 0.2f, .top_p = 0.9f}},
    {"Llama 3", "llama", "llama3", "", {.temperature = 0.6f, .top_p = 0.9f}},
    {"Qwen 2.5", "qwen2", "qwen2.5", "0.5b", {.temperature = 0.7f, .top_k = 20, .top_p = 0.8f}, 1.1f},
    {"Qwen 2.5", "qwen2", "qwen2.5", "1.5b", {.temperature = 0.7f, .top_k = 20, .top_p = 0.8f}, 1.1f},
    {"Qwen 2.5", "qwen2", "qwen2.5", "", {.temperature = 0.7f, .top_k = 20, .top_p = 0.8f}, 1.05f},
    {"Qwen 3, not thinking", "qwen3", "", "instruct", {.temperature = 0.7f, .top_k = 20, .top_p = 0.8f}},
    {"Qwen 3, thinking", "qwen3", "", "", {.temperature = 0.6f, .top_k = 20, .top_p = 0.95f}},
    {"Gemma 2", "gemma2", "", "", {.temperature = 1.f, .top_k = 64, .top_p = 0.95f}},
    {"Gemma 3", "gemma3", "", "", {.temperature = 1.f, .top_k = 64, .top_p = 0.95f}},
};

std::string text_or_empty(const ModelFile& file, std::string_view key) {
  return file.has(key) ? file.get_string(key) : std::string();
}

// In small letters, words apart by one space, and numbers joined to the word before them: "Meta-Llama 3.1 8B" is
// "meta llama3.1 8b".
std::string normal_name(std::string_view text) {
  std::string name;
  for (const char c : text) {
    const bool between = c == ' ' || c == '-' || c == '_' || c == '/';
    if (between) {
      if (!name.empty() && name.back() != ' ') name += ' ';
      continue;
    }
    const auto is_letter = [](char letter) { return std::isalpha(static_cast<unsigned char>(letter)) != 0; };
    const bool joins = std::isdigit(static_cast<unsigned char>(c)) != 0 && name.size() > 1 && name.back() == ' ' &&
                       is_letter(name[name.size() - 2]);
    if (joins) name.pop_back();
    name += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return name;
}

bool has_word(std::string_view name, std::string_view word) {
  for (size_t at = 0; (at = name.find(word, at)) != name.npos; at += word.size()) {
    const size_t end = at + word.size();
    const bool begins = at == 0 || name[at - 1] == ' ';
    if (begins && (end == name.size() || name[end] == ' ' || name[end] == '.')) return true;
  }
  return false;
}

const Family* family_of(const ModelFile& file) {
  if (!file.has("tokenizer.chat_template")) return nullptr;  // recommendations are for chats
  const std::string architecture = text_or_empty(file, "general.architecture");
  std::string texts;
  for (const char* key :
       {"general.basename", "general.name", "general.finetune", "general.size_label", "general.base_model.0.name"})
    texts += text_or_empty(file, key) + " ";
  const std::string name = normal_name(texts);
  for (const Family& family : kFamilies)
    if (family.architecture == architecture && (family.word.empty() || has_word(name, family.word)) &&
        name.find(family.part) != name.npos)
      return &family;
  return nullptr;
}

struct SamplingRange {
  double least, most;
  std::string_view words;
  bool without_least = false;
  bool holds(double value) const { return value <= most && (without_least ? value > least : value >= least); }
};

// A value as messages show it.
std::string shown_value(const ModelFile& file, std::string_view key) {
  try {
    return quoted(file.get_string(key));
  } catch (const Error&) {
    return "neither a number nor a text";
  }
}

double sampling_number(const ModelFile& file, std::string_view key, const SamplingRange& range) {
  try {
    return file.get_float(key);
  } catch (const Error&) {  // some write integers
  }
  try {
    return static_cast<double>(file.get_int(key));
  } catch (const Error&) {
    fail(ErrorCode::invalid_file, "{}: metadata '{}' is {}; allowed are {}", file.path(), key, shown_value(file, key),
         range.words);
  }
}

// One out of range is no recommendation that could be followed.
bool read_number(const ModelFile& file, std::string_view name, const SamplingRange& range, double& value) {
  const std::string key = fmt::format("general.sampling.{}", name);
  if (!file.has(key)) return false;
  value = sampling_number(file, key, range);
  if (range.holds(value)) return true;
  log::warn("{}: metadata '{}' is {}; allowed are {}: it is left out", file.path(), key, value, range.words);
  return false;
}

}  // namespace

std::optional<SamplingDefaults> sampling_defaults(const ModelFile& file) {
  SamplingDefaults defaults;
  const Family* family = family_of(file);
  if (family != nullptr) defaults = {family->params, {.repetition = family->repetition}, std::string(family->name)};
  bool of_file = false;
  double value = 0;
  const auto take = [&](std::string_view name, const SamplingRange& range) {
    const bool there = read_number(file, name, range, value);
    of_file |= there;
    return there;
  };
  // Zero and less switch top_k off.
  constexpr int kMostTopK = std::numeric_limits<int>::max();
  if (take("top_k", {-1, kMostTopK, "numbers from -1 to 2147483647, where 0 and less are off"}))
    defaults.params.top_k = value > 0 ? static_cast<int>(value) : 0;
  if (take("temp", {0, 100, "numbers from 0 (greedy) to 100"})) defaults.params.temperature = static_cast<float>(value);
  if (take("top_p", {0, 1, "numbers above 0 up to 1 (off)", true})) defaults.params.top_p = static_cast<float>(value);
  if (take("min_p", {0, 1, "numbers from 0 (off) to 1"})) defaults.params.min_p = static_cast<float>(value);
  if (take("penalty_repeat", {0, 100, "numbers above 0 up to 100, where 1 is off", true}))
    defaults.penalties.repetition = static_cast<float>(value);
  if (of_file) defaults.source = "the model's file";
  if (family == nullptr && !of_file) return std::nullopt;
  return defaults;
}

std::string to_json(const SamplingParams& params, const Penalties& penalties) {
  return fmt::format(R"({{"temperature":{},"top_k":{},"top_p":{},"min_p":{},"repetition_penalty":{}}})",
                     params.temperature, params.top_k, params.top_p, params.min_p, penalties.repetition);
}

std::string to_string(const SamplingParams& params, const Penalties& penalties) {
  std::string text = params.temperature > 0 ? fmt::format("temperature {}", params.temperature) : "greedy";
  if (params.temperature > 0) {
    if (params.top_k > 0) text += fmt::format(", top-k {}", params.top_k);
    if (params.top_p < 1) text += fmt::format(", top-p {}", params.top_p);
    if (params.min_p > 0) text += fmt::format(", min-p {}", params.min_p);
  }
  if (penalties.repetition != 1) text += fmt::format(", repetition penalty {}", penalties.repetition);
  if (penalties.presence != 0) text += fmt::format(", presence penalty {}", penalties.presence);
  if (penalties.frequency != 0) text += fmt::format(", frequency penalty {}", penalties.frequency);
  return text;
}

}  // namespace weft
