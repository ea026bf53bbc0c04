#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "models/template/interpreter.h"
#include "models/template/parser.h"
#include "weft/error.h"
#include "weft/model.h"

namespace weft {
namespace {

using Json = nlohmann::ordered_json;

Json read_json(const std::string& name) {
  std::ifstream file(WEFT_TEST_DATA "/chat_templates/" + name);
  return Json::parse(file);
}

std::string render(std::string_view source, const std::string& context = "{}") {
  return ChatTemplate(source).render(context);
}

std::string error_of(std::string_view source, const std::string& context = "{}") {
  try {
    return "rendered: " + render(source, context);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_template);
    return error.what();
  }
}

TEST(ChatTemplate, RendersTheModelsOwnTemplatesByteForByte) {
  const Json data = read_json("models.json");
  int count = 0;
  for (const Json& item : data.at("cases")) {
    Json context = data.at("contexts").at(item.at("context").get<std::string>());
    for (const char* key : {"add_generation_prompt", "bos_token", "eos_token"}) context[key] = item.at(key);
    const std::string name = item.at("template_name");
    EXPECT_EQ(render(data.at("templates").at(name).get<std::string>(), context.dump()),
              item.at("rendered").get<std::string>())
        << name << " with " << item.at("context");
    ++count;
  }
  EXPECT_EQ(count, 24);
}

// In the form of Gemma's: turns that must alternate, the system's text in front of the first, contents in parts.
TEST(ChatTemplate, RendersTurnsInGemmasForm) {
  constexpr std::string_view kTurns = R"({{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- set prefix = (messages[0]['content'] if messages[0]['content'] is string
                      else messages[0]['content'][0]['text']) + '\n\n' -%}
    {%- set turns = messages[1:] -%}
{%- else -%}
    {%- set prefix = "" -%}
    {%- set turns = messages -%}
{%- endif -%}
{%- for turn in turns -%}
    {%- if (turn['role'] == 'user') != (loop.index0 % 2 == 0) -%}
        {{ raise_exception("turns must alternate") }}
    {%- endif -%}
    {%- set role = "model" if turn['role'] == 'assistant' else turn['role'] -%}
    {{ '<start_of_turn>' + role + '\n' + (prefix if loop.first else "") }}
    {%- if turn['content'] is string -%}
        {{ turn['content'] | trim }}
    {%- elif turn['content'] is iterable -%}
        {%- for part in turn['content'] -%}
            {%- if part['type'] == 'text' -%}{{ part['text'] | trim }}{%- endif -%}
        {%- endfor -%}
    {%- else -%}
        {{ raise_exception("no content") }}
    {%- endif -%}
    {{ '<end_of_turn>\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<start_of_turn>model\n' }}{%- endif -%})";
  const auto turns = [&](const std::string& messages) {
    return R"({"bos_token": "<bos>", "add_generation_prompt": true, "messages": [)" + messages + "]}";
  };
  const std::string user = R"({"role": "user", "content": " Hi \n"})";
  EXPECT_EQ(render(kTurns, turns(user)), "<bos><start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\n");
  EXPECT_EQ(render(kTurns, turns(R"({"role": "system", "content": [{"type": "text", "text": "Be kind."}]},)" + user +
                                 R"(, {"role": "assistant", "content": "Yes?"},
                                    {"role": "user", "content": [{"type": "text", "text": "a "},
                                                                 {"type": "image"}]})")),
            "<bos><start_of_turn>user\nBe kind.\n\nHi<end_of_turn>\n<start_of_turn>model\nYes?<end_of_turn>\n"
            "<start_of_turn>user\na<end_of_turn>\n<start_of_turn>model\n");
  EXPECT_NE(error_of(kTurns, turns(user + "," + user)).find("turns must alternate"), std::string::npos);
  EXPECT_NE(error_of(kTurns, turns(R"({"role": "user", "content": 3})")).find("no content"), std::string::npos);
}

// The same snippets as Jinja itself renders them.
TEST(ChatTemplate, RendersSnippetsAsJinjaDoes) {
  const Json data = read_json("snippets.json");
  const jinja::Value context = jinja::object_from_json(data.at("context").dump());
  const jinja::RenderOptions options{.now = 1721995200};  // 26 July 2024, noon in UTC
  for (const Json& item : data.at("cases")) {
    const std::string source = item.at("template");
    try {
      const std::string rendered = jinja::render(jinja::parse(source), context, options);
      EXPECT_TRUE(item.contains("rendered"))
          << source << "\n renders " << rendered << "\n but Jinja says " << item.dump();
      if (item.contains("rendered")) {
        EXPECT_EQ(rendered, item.at("rendered").get<std::string>()) << source;
      }
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_template);
      EXPECT_TRUE(item.contains("error")) << source << "\n fails with " << error.what();
    }
  }
}

TEST(ChatTemplate, RefusesWhatItDoesNotSupportWithItsLine) {
  const std::pair<const char*, const char*> cases[] = {
      {"a\n{% include 'x' %}", "line 2: {% include %} is not supported"},
      {"{% call f() %}{% endcall %}", "line 1: {% call %} is not supported"},
      {"\n\n{{ x | wordwrap }}", "line 3: filter 'wordwrap' is not supported"},
      {"{{ x is sameas y }}", "line 1: test 'sameas' is not supported"},
      {"{{ 'a'.encode() }}", "method 'encode' of a string is not supported"},
      {"\n{{ '{:k}'.format(1) }}", "line 2: format: 'k' is not supported in 'k'"},
      {"{{ '{!z}'.format(1) }}", "format: '!z' is no conversion; they are !s, !r and !a"},
      {"{{ '{:c}'.format(1114112) }}", "1114112 is the number of no character"},
      {"{{ '{:c}'.format(55296) }}", "55296 is the number of no character"},
      {"{{ '{:+c}'.format(65) }}", "'c' takes neither a sign"},
      {"{{ '{:c}'.format(1.5) }}", "'c' is for integers"},
      {"{{ '{:,n}'.format(1.5) }}", "'n' takes no groups"},
      {"{{ '{0} {}'.format(1, 2) }}", "fields are numbered, or take"},
      {"{{ '{:99999999999999999999}'.format(1) }}", "widths and precisions are 0 to 65536"},
      {"{{ '{:.9999}'.format(1.5) }}", "widths and precisions are 0 to 1000"},
      {"{{ '{'.format(1) }}", "a '{' is not closed"},
      {"{{ '{1}'.format(1) }}", "there is no argument 1; 1 were given"},
      {"{{ '{:{:{}}}'.format(1, 2, 3) }}", "nested too deep"},
      {"\n{{ '[1' | from_json }}", "line 2: from_json: no JSON at byte"},
      {"{{ {} | from_json }}", "from_json needs a string, not mapping"},
      {"{{ f(*x) }}", "arguments with * are not supported"},
      {"{% for x in y recursive %}{% endfor %}", "a recursive loop is not supported"},
      {"{{ 1 < 2 < 3 }}", "a chain of comparisons is not supported"},
      {"{{ '%s' % 1 }}", "formatting with % is not supported"},
      {"{{ [1] | tojson(cls=1) }}", "not supported"},
      {"{{ {1.5: 2} }}", "a key of type float is not supported; strings and integers are"},
      {"{{ {true: 2} }}", "a key of type boolean is not supported"},
      {"{{ map }}{{ 'x' | map('nope') }}", "filter 'nope' is not supported"},
  };
  for (const auto& [source, message] : cases)
    EXPECT_NE(error_of(source).find(message), std::string::npos) << error_of(source);
}

TEST(ChatTemplate, NamesTheLineOfASyntaxError) {
  const std::pair<const char*, const char*> cases[] = {
      {"{{ 1 + }}", "line 1"},
      {"x\n{% if a %}\n", "{% endif %} is expected"},
      {"{% endif %}", "not supported"},
      {"a\nb {{ 'open }}", "line 2: a string is not closed"},
      {"\n{# never", "line 2: a comment is not closed"},
      {"\n\n{{ a", "line 3: a tag is not closed"},
      {"{% raw %} x", "{% raw %} is not closed"},
      {"{{ a ] }}", "closes nothing"},
      {"{{ a ? b }}", "'?' has no meaning"},
      {"{% set = 1 %}", "a name is expected"},
      {"{% break %}", "break outside a loop"},
      {"{{ 99999999999999999999 }}", "too large"},
      {"{{ '\\ud800' }}", "no character"},
      {"{{ x is }}", "a name is expected"},
      {"{{ f(a=1, 2) }}", "positional argument follows"},
      {"{% macro f(a=1, b) %}{% endmacro %}", "without a default"},
  };
  for (const auto& [source, message] : cases)
    EXPECT_NE(error_of(source).find(message), std::string::npos) << error_of(source);
}

TEST(ChatTemplate, HandsOnTheMessageOfRaiseException) {
  const std::string message = error_of("\n{{ raise_exception('roles must alternate') }}");
  EXPECT_NE(message.find("line 2"), std::string::npos) << message;
  EXPECT_NE(message.find("roles must alternate"), std::string::npos) << message;
}

TEST(ChatTemplate, EndsHostileTemplatesWithinBounds) {
  const std::string deep_brackets = "{{ " + std::string(100000, '(') + "1" + std::string(100000, ')') + " }}";
  std::string deep_ifs, long_sum = "{{ 1", long_chain = "{{ x", long_not = "{{ ";
  for (int i = 0; i < 5000; ++i) {
    deep_ifs += "{% if true %}";
    long_sum += " + 1";
    long_chain += ".x";
    long_not += "not ";
  }
  const std::string cases[] = {
      "{% for a in range(100000) %}{% for b in range(100000) %}{{ 1 }}{% endfor %}{% endfor %}",
      "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
      "{% set ns = namespace(s='x') %}{% for i in range(100) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
      "{% set ns = namespace(l=[1]) %}{% for i in range(100) %}{% set ns.l = ns.l + ns.l %}{% endfor %}",
      "{% set ns = namespace(l=[1]) %}{% for i in range(99) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l }}",
      "{% set ns = namespace(l=[1]) %}{% for i in range(99) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l == ns.l "
      "}}",
      "{% set ns = namespace(l=[1]) %}{% for i in range(100000) %}{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l }}",
      "{% set ns = namespace() %}{% set ns.x = ns %}{{ ns.x }}",
      "{% set ns = namespace() %}{% set x = [ns] %}",
      "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
      "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
      "{{ 'x' * 1000000000000 }}",
      "{{ [1] * 1000000000000 }}",
      "{{ range(1000000000) }}",
      "{{ range(-9223372036854775807, 9223372036854775807) }}",
      "{{ 9223372036854775807 + 1 }}",
      "{{ 3 ** 1000000000 }}",
      "{{ strftime_now('%Y' * 1000) }}",
      "{{ ('{0:>65536}' * 1000).format(1) }}",
      "{{ ('[' * 5000) | from_json }}",
      deep_brackets,
      deep_ifs,
      long_sum + " }}",
      long_chain + " }}",
      long_not + "1 }}",
  };
  for (const std::string& source : cases) {
    const std::string message = error_of(source, R"({"x": {}})");
    EXPECT_TRUE(message.starts_with("invalid_template")) << source.substr(0, 120) << ": " << message.substr(0, 200);
  }
}

TEST(ChatTemplate, RefusesAContextThatIsNoObject) {
  std::string deep = R"({"a": )" + std::string(1000, '[') + std::string(1000, ']') + "}";
  std::string many = "{";
  for (int i = 0; i < 2000; ++i) many += (i > 0 ? ", \"" : "\"") + std::to_string(i) + "\": 1";
  many += "}";
  for (const std::string& context : {std::string(""), std::string("[]"), std::string("{"), std::string("1"),
                                     std::string("{\"a\": \"\xff\"}"), deep, many}) {
    try {
      render("x", context);
      ADD_FAILURE() << context.substr(0, 40);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << context.substr(0, 40);
    }
  }
}

TEST(ChatTemplate, RefusesATemplateThatIsNotUtf8) { EXPECT_NE(error_of("a\n\xff").find("line 2"), std::string::npos); }

// Arguments are work, too: a long one that is read again and again ends as a long loop does.
TEST(ChatTemplate, CountsWhatCallsAreGiven) {
  const std::string text = "{% set s = 'a' * 4000000 %}{% for i in range(100000) %}{% set x = ";
  for (const char* call : {"'{:.3}'.format(s)", "'b'.replace(s, 'x')", "'b'.strip(s)", "'b' | replace(s, 'x')"})
    EXPECT_NE(error_of(text + call + " %}{% endfor %}x").find("steps"), std::string::npos) << call;
}

// A value for each character takes a hundred times the text's memory: that is charged before it is taken.
TEST(ChatTemplate, CountsTheMemoryOfTextsThatAreTakenApart) {
  const auto refused = [](int64_t bytes, const std::string& taken) {
    const std::string text = "{% set s = 'a' * " + std::to_string(bytes) + " %}{% set x = " + taken + " %}";
    return error_of(text).find("more than 3000000 steps") != std::string::npos;
  };
  for (const char* taken : {"s | list", "s | reverse", "s | unique", "'' in (s | list)", "''.join(s)"})
    EXPECT_TRUE(refused(1'000'000, taken)) << taken;
  EXPECT_TRUE(refused(8'000'000, "s[1:]"));
  EXPECT_TRUE(refused(200'000, "(s | list) + (s | list) + (s | list)"));
  EXPECT_EQ(render("{% set s = 'a' * 300000 + 'é' %}{{ s[-2:] }}{{ s | last }}{{ s | first }}{{ s[300000] }}"
                   "{{ (s | list) | length }}"),
            "aééaé300001");
  EXPECT_EQ(render("{{ 'éa' | first }}{{ 'aé' | last }}{{ 'a' | last }}[{{ '' | first }}{{ '' | last }}]"), "ééa[]");
  EXPECT_EQ(render("{{ 'aébc'[1:3] }} {{ 'aébc'[::-1] }} {{ [1, 2, 3][::2] }} {{ (1, 2, 3)[1:] }}"),
            "éb cbéa [1, 3] (2, 3)");
}

// CPython 3.11 gives these.
TEST(ChatTemplate, FormatsCharactersNumbersOfTheLocaleAndAsciiAsPythonDoes) {
  EXPECT_EQ(render("{{ '{:c}|{:3c}|{:<3c}|{:c}|{:c}'.format(97, 98, 99, 233, 128512) }}"), "a|  b|c  |é|😀");
  EXPECT_EQ(render("{{ '{:n}|{:6n}|{:n}|{:.3n}'.format(1234567, 42, 1234.5, 1234.5) }}"),
            "1234567|    42|1234.5|1.23e+03");
  EXPECT_EQ(render("{{ '{!a}|{!a}|{!a:>9}'.format('aé日😀', ['ü'], 'é') }}"),
            "'a\\xe9\\u65e5\\U0001f600'|['\\xfc']|   '\\xe9'");
}

TEST(ChatTemplate, MakesMappingsAsJinjaDoes) {
  EXPECT_EQ(render("{{ dict({'a': 1}) }} {{ dict([['a', 1]], b=2) }} {{ dict(c=3) }} {{ dict({'a': 1}, a=2) }}"),
            "{'a': 1} {'a': 1, 'b': 2} {'c': 3} {'a': 2}");
  EXPECT_NE(error_of("{{ dict(1) }}").find("cannot be iterated"), std::string::npos);
  EXPECT_NE(error_of("{{ dict([[1, 2, 3]]) }}").find("pairs"), std::string::npos);
  EXPECT_NE(error_of("{{ dict({}, {}) }}").find("dict takes one mapping"), std::string::npos);
}

}  // namespace
}  // namespace weft
