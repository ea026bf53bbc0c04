// `weft jit`: what is in the kernel cache, and what to do with it.
#include "weft/jit.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <fstream>
#include <limits>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "cli/arguments.h"
#include "cli/cli.h"
#include "cli/jit_compile.h"
#include "cli/output.h"
#include "jit/nvrtc/cubin.h"

namespace weft::cli {
namespace {

nlohmann::json to_json(const jit::Entry& entry) {
  return {{"key", entry.key},
          {"name", entry.name},
          {"compiler", entry.compiler},
          {"bytes", entry.bytes},
          {"modified_s", entry.modified_s},
          {"intact", entry.intact}};
}

void print_entries(const std::vector<jit::Entry>& entries, const Context& context) {
  constexpr const char* kColumns = "{:<16}  {:>8}  {:<16}  {:<32}  {}\n";
  if (!context.json && !entries.empty()) print_out(fmt::runtime(kColumns), "key", "bytes", "made", "name", "compiler");
  for (const jit::Entry& entry : entries) {
    if (context.json) {
      print_json(to_json(entry));
      continue;
    }
    const std::string made = fmt::format("{:%Y-%m-%d %H:%M}", fmt::localtime(std::time_t{entry.modified_s}));
    print_out(fmt::runtime(kColumns), entry.key.substr(0, 16), entry.bytes, made,
              entry.intact ? entry.name : "(damaged)", entry.compiler);
  }
}

void print_removed(const std::vector<jit::Entry>& entries, const Context& context) {
  print_entries(entries, context);
  uint64_t bytes = 0;
  for (const jit::Entry& entry : entries) bytes += entry.bytes;
  if (context.json)
    print_json({{"event", "done"}, {"removed", entries.size()}, {"bytes", bytes}});
  else
    print_out("{} removed, {} bytes\n", entries.size(), bytes);
}

void write_object(const std::string& object, const std::string& path) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(object.data(), static_cast<std::streamsize>(object.size()));
  file.close();
  check(file.good(), ErrorCode::io_error, "--object: '{}' cannot be written", path);
}

void add_list(Verb& jit, Context& context) {
  Verb verb = jit.verb("list", "Compiled modules, newest first");
  verb.runs([&context] {
    const std::vector<jit::Entry> entries = jit::list();
    print_entries(entries, context);
    if (!context.json && entries.empty()) print_out("nothing in {}\n", jit::cache_dir());
  });
}

// What kernels of a card take of a multiprocessor; of the CPU's modules nothing.
nlohmann::json resources_json(const std::string& object) {
  nlohmann::json all = nlohmann::json::array();
  if (!jit::is_cubin(object)) return all;
  for (const jit::KernelResources& kernel : jit::kernel_resources(object))
    all.push_back({{"name", kernel.name},
                   {"registers", kernel.registers},
                   {"stack_bytes", kernel.stack_bytes},
                   {"static_shared_bytes", kernel.static_shared_bytes}});
  return all;
}

void print_resources(const std::string& object) {
  if (!jit::is_cubin(object)) return;
  for (const jit::KernelResources& kernel : jit::kernel_resources(object))
    print_out(
        "// {}: {} registers a thread, {} bytes of stack a thread, {} bytes of shared memory a CTA beside its "
        "launch's\n",
        kernel.name, kernel.registers, kernel.stack_bytes, kernel.static_shared_bytes);
}

void add_show(Verb& jit, Context& context) {
  struct Options {
    std::string key, object;
    bool sass = false;
  };
  Verb verb = jit.verb("show", "What a module is, the text it was made from, and what a card's kernels take of it");
  auto options = std::make_shared<Options>();
  verb.option("key", options->key, "A key, or at least its first 4 digits").required().type_name("KEY");
  verb.flag("--sass", options->sass, "A card's machine code instead of the text, by nvdisasm or cuobjdump");
  verb.option("--object", options->object, "Also write the module, for objdump -d or nvdisasm")
      .type_name("FILE")
      .filled();
  verb.example("weft jit show 3fa94c --object leaf.so && objdump -dl leaf.so");
  verb.runs([options, &context] {
    const std::string object = jit::object(options->key);
    check(!options->sass || jit::is_cubin(object), ErrorCode::invalid_argument,
          "--sass: module {} is the CPU's; write it with --object FILE and give that to objdump -dl", options->key);
    const std::string text = options->sass ? jit::disassemble(object) : jit::source(options->key);
    const std::string name = jit::find(options->key).name;
    if (!options->object.empty()) write_object(object, options->object);
    if (context.json)
      return print_json({{"key", options->key},
                         {"name", name},
                         {options->sass ? "sass" : "text", text},
                         {"kernels", resources_json(object)}});
    print_out("// {}\n", name);
    print_resources(object);
    write_out(text);
  });
}

void add_verify(Verb& jit, Context& context) {
  Verb verb = jit.verb("verify", "Check every module's checksum and remove the damaged ones");
  verb.runs([&context] { print_removed(jit::verify(), context); });
}

void add_prune(Verb& jit, Context& context) {
  struct Options {
    int64_t max_bytes = 0;
    int64_t max_age_s = 0;
    bool all = false;
  };
  Verb verb = jit.verb("prune", "Remove old modules; they are compiled again when needed");
  auto options = std::make_shared<Options>();
  const Option bytes = verb.bytes("--max-bytes", options->max_bytes, "Oldest first, until the rest fits (64MB, 1GB)");
  const Option age = verb.seconds("--max-age", options->max_age_s, "Those older than this (90m, 12h, 30d)");
  verb.flag("--all", options->all, "Every one").excludes(bytes).excludes(age);
  verb.needs_options();
  verb.example("weft jit prune --max-bytes 64MB --max-age 30d");
  verb.runs([options, bytes, age, &context] {
    jit::PruneOptions prune;
    if (options->all) prune.max_bytes = 0;
    if (bytes.given()) prune.max_bytes = options->max_bytes;
    if (age.given()) prune.max_age_s = options->max_age_s;
    print_removed(jit::prune(prune), context);
  });
}

void add_export(Verb& jit, Context& context) {
  struct Options {
    std::string folder;
    std::vector<std::string> keys;
  };
  Verb verb = jit.verb("export", "Copy modules to a folder that serves where no compiler is");
  auto options = std::make_shared<Options>();
  verb.option("folder", options->folder, "WEFT_CACHE_DIR of the other machine; made when it is not there")
      .required()
      .type_name("FOLDER");
  verb.option("keys", options->keys, "Keys or their first digits; default: all").type_name("KEY");
  verb.example("weft jit export /srv/weft-kernels");
  verb.runs([options, &context] {
    jit::export_to(options->folder, options->keys);
    if (context.json)
      print_json({{"event", "done"}, {"folder", options->folder}});
    else
      print_out("exported to {}\n", options->folder);
  });
}

}  // namespace

void add_jit(Program& program, Context& context) {
  Verb verb = program.verb("jit", "The cache of kernels compiled at run time");
  verb.needs_verb();
  verb.example("weft jit list");
  add_list(verb, context);
  add_show(verb, context);
  add_jit_compile(verb, context);
  add_verify(verb, context);
  add_prune(verb, context);
  add_export(verb, context);
}

}  // namespace weft::cli
