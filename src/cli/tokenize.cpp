// `weft tokenize`: text to ids and back.
#include <charconv>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "cli/arguments.h"
#include "cli/cli.h"
#include "cli/output.h"
#include "cli/text_input.h"
#include "weft/model.h"

namespace weft::cli {
namespace {

struct TokenizeOptions {
  std::string model;
  TextInput input;
  bool decode = false, no_special = false, parse_special = false, pieces = false;
};

// Numbers separated by white space or commas, with or without brackets around them.
std::vector<int32_t> parse_ids(const std::string& text) {
  std::vector<int32_t> ids;
  const char *at = text.data(), *const end = at + text.size();
  while (at != end) {
    if (std::string_view(" \t\r\n,[]").find(*at) != std::string_view::npos) {
      ++at;
      continue;
    }
    int32_t id = 0;
    const auto [next, error] = std::from_chars(at, end, id);
    check(error == std::errc(), ErrorCode::invalid_argument,
          "ids: no token id at byte {} ('{}'); allowed are numbers separated by spaces or commas", at - text.data(),
          std::string_view(at, std::min<size_t>(static_cast<size_t>(end - at), 12)));
    ids.push_back(id);
    at = next;
  }
  return ids;
}

void tokenize(const TokenizeOptions& options, const Context& context) {
  const Tokenizer tokenizer = from_file([&] { return Tokenizer(ModelFile(options.model)); });
  const std::string input = read_text(options.input);
  const std::vector<int32_t> ids =
      options.decode
          ? parse_ids(input)
          : tokenizer.encode(input, {.add_special = !options.no_special, .parse_special = options.parse_special});
  if (options.decode) {
    const std::string text = tokenizer.decode(ids, options.no_special);
    if (context.json) return print_json({{"ids", ids}, {"text", text}});
    write_out(text);
    return;
  }
  nlohmann::json pieces = nlohmann::json::array();
  for (const int32_t id : options.pieces ? ids : std::vector<int32_t>{}) pieces.push_back(tokenizer.piece(id, false));
  if (context.json) {
    nlohmann::json object = {{"ids", ids}};
    if (options.pieces) object["pieces"] = pieces;
    return print_json(object);
  }
  if (options.pieces) {
    for (size_t i = 0; i < ids.size(); ++i)
      print_out("{:>8} {}\n", ids[i], pieces[i].dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
    return;
  }
  print_out("{}\n", fmt::join(ids, " "));
}

}  // namespace

void add_tokenize(Program& program, Context& context) {
  Verb verb = program.verb("tokenize", "Turn text into token ids, or ids into text");
  auto options = std::make_shared<TokenizeOptions>();
  verb.option("model", options->model, "The model, a GGUF file").required().type_name("MODEL");
  add_text_options(verb, options->input, "The text, or the ids with --decode; default: stdin");
  verb.flag("--decode", options->decode, "The way back: ids, separated by spaces or commas, to text");
  verb.flag("--no-special", options->no_special, "No BOS or EOS; with --decode, leave control tokens out");
  verb.flag("--parse-special", options->parse_special, "Texts of control tokens become those tokens");
  verb.flag("--pieces", options->pieces, "Show the text of each token");
  verb.example("weft tokenize model.gguf -p \"Once upon a time\"");
  verb.runs([options, &context] { tokenize(*options, context); });
}

}  // namespace weft::cli
