// Reads statements and functions of flat loops.
#include "base/check.h"
#include "loop/parse.h"
#include "loop/regions.h"

namespace weft::loop {
namespace {

std::string declared_name(Cursor& line, std::string_view what, const Symbols& symbols) {
  const size_t column = line.column();
  std::string name = line.new_name(what);
  if (symbols.variables.contains(name) || symbols.buffers.contains(name))
    line.fail_at(column, fmt::format("'{}' is declared twice", name));
  return name;
}

std::string thread_name(Cursor& line) {
  const size_t column = line.column();
  std::string name = line.name("a thread axis");
  line.expect(".");
  name += "." + line.name("a thread axis");
  for (const char* known : {"blockIdx.x", "blockIdx.y", "blockIdx.z", "threadIdx.x", "threadIdx.y", "threadIdx.z"})
    if (name == known) return name;
  line.fail_at(column, fmt::format("'{}' is no thread axis; allowed are blockIdx and threadIdx, .x to .z", name));
}

void parse_attributes(Cursor& line, Stmt& loop) {
  if (!line.accept("[")) return;
  do {
    const std::string word = line.name("an attribute of a loop");
    if (word == "reduce") {
      loop.reduction = true;
    } else if (word == "bind") {
      line.expect("=");
      loop.loop = LoopKind::bind;
      loop.thread = thread_name(line);
    } else if (word == "balance") {
      line.expect("=");
      loop.balance = line.name("an indptr");
    } else if (word == "joined") {
      loop.joined = true;
    } else {
      bool is_kind = false;
      for (const LoopKind kind : {LoopKind::parallel, LoopKind::vectorize, LoopKind::unroll})
        if (to_string(kind) == word) loop.loop = kind, is_kind = true;
      if (is_kind) continue;
      int64_t value = 0;
      if (line.accept("=") && is_integer(line.number_literal(), &value))
        loop.annotations.push_back(fmt::format("{}={}", word, value));
      else
        loop.annotations.push_back(word);
    }
  } while (line.accept(","));
  line.expect("]");
}

Scope parse_scope(Cursor& line) {
  const size_t column = line.column();
  const std::string name = line.name("a scope");
  for (const Scope scope : {Scope::global, Scope::shared, Scope::registers, Scope::fragment})
    if (to_string(scope) == name) return scope;
  line.fail_at(column, fmt::format("'{}' is no scope; allowed are global, shared, register and fragment", name));
}

// "A[i, j], B[i, 0:8, :]"
std::vector<Region> parse_regions(Cursor& line, const Symbols& symbols) {
  std::vector<Region> regions;
  do {
    const size_t column = line.column();
    Region region{.buffer = line.name("a buffer")};
    const auto buffer = symbols.buffers.find(region.buffer);
    if (buffer == symbols.buffers.end())
      line.fail_at(column, fmt::format("no buffer '{}' is declared here", region.buffer));
    line.expect("[");
    do {
      Range range;
      if (!line.looks_like(":")) range.begin = parse_integer(line, symbols);
      if (line.accept(":") && range.begin) range.end = parse_integer(line, symbols);
      region.ranges.push_back(std::move(range));
    } while (line.accept(","));
    line.expect("]");
    if (const size_t rank = buffer->second.num_indices; region.ranges.size() != rank)
      line.fail_at(column, fmt::format("'{}' has {} dimensions, not {}", region.buffer, rank, region.ranges.size()));
    regions.push_back(std::move(region));
  } while (line.accept(","));
  line.expect_end();
  return regions;
}

// The line "reads: ..." or "writes: ..." of a block, if it comes next.
std::vector<Region> parse_regions_line(Source& source, int indent, std::string_view word, const Symbols& symbols) {
  if (!source.has_line(indent)) return {};
  Cursor line = source.peek();
  if (!line.accept(word) || !line.accept(":")) return {};
  source.next();
  return parse_regions(line, symbols);
}

Stmt parse_stmt(Source& source, int indent, Symbols& symbols) {
  Cursor line = source.next();
  if (line.accept("for")) {
    Stmt loop{.kind = Stmt::Kind::loop, .name = declared_name(line, "loop variable", symbols)};
    line.expect("in");
    line.expect("range");
    line.expect("(");
    loop.value = parse_integer(line, symbols);
    line.expect(")");
    parse_attributes(line, loop);
    line.expect(":");
    line.expect_end();
    Symbols inner = symbols;
    inner.variables.insert(loop.name);
    loop.body = parse_body(source, indent + 2, std::move(inner));
    return loop;
  }
  if (line.accept("if")) {
    Expr condition = parse_condition(line, symbols);
    line.expect(":");
    line.expect_end();
    return make_condition(condition, parse_body(source, indent + 2, symbols));
  }
  if (line.accept("let")) {
    std::string name = declared_name(line, "variable", symbols);
    line.expect("=");
    Expr value = parse_integer(line, symbols);
    line.expect_end();
    symbols.variables.insert(name);
    return make_let(name, value);
  }
  if (line.accept("allocate")) {
    Stmt stmt{.kind = Stmt::Kind::allocate, .name = declared_name(line, "buffer", symbols)};
    line.expect("[");
    do {
      stmt.indices.push_back(parse_integer(line, symbols));
    } while (line.accept(","));
    line.expect("]");
    line.expect(":");
    stmt.dtype = parse_dtype(line);
    line.expect("in");
    stmt.scope = parse_scope(line);
    line.expect_end();
    symbols.buffers[stmt.name] = {type_of(stmt.dtype), stmt.indices.size()};
    return stmt;
  }
  if (line.accept("block")) {
    Stmt block{.kind = Stmt::Kind::block, .name = line.new_name("block")};
    line.expect(":");
    line.expect_end();
    block.reads = parse_regions_line(source, indent + 2, "reads", symbols);
    block.writes = parse_regions_line(source, indent + 2, "writes", symbols);
    if (source.has_line(indent + 2)) {
      if (Cursor first = source.peek(); first.accept("init")) {
        first.expect(":");
        first.expect_end();
        source.next();
        block.init = parse_body(source, indent + 4, symbols);
      }
    }
    block.body = parse_body(source, indent + 2, symbols);
    const bool has_regions = !block.reads.empty() || !block.writes.empty();
    if (const Regions found = regions_of_block(block);
        has_regions && (found.reads != block.reads || found.writes != block.writes))
      line.fail(fmt::format("what block '{}' reads is {}; what it writes is {}", block.name, to_text(found.reads),
                            to_text(found.writes)));
    return block;
  }
  if (line.accept("fail")) {
    Stmt stmt{.kind = Stmt::Kind::fail, .writer = line.name("an iteration")};
    line.expect(":");
    stmt.name = line.name("a buffer");
    line.expect("[");
    do {
      stmt.indices.push_back(parse_integer(line, symbols));
    } while (line.accept(","));
    line.expect("]");
    line.expect_end();
    return stmt;
  }
  const bool atomic = line.accept("atomic");
  Stmt store = parse_store(line, symbols);
  store.atomic = atomic;
  return store;
}

}  // namespace

std::vector<std::string> parse_apart(Cursor& line) {
  std::vector<std::string> names;
  line.expect("(");
  do {
    names.push_back(line.name("what is apart"));
  } while (line.accept(","));
  line.expect(")");
  line.expect_end();
  return names;
}

namespace {

void parse_buffer(Cursor& line, Function& function, Symbols& symbols) {
  Buffer buffer{.name = declared_name(line, "buffer", symbols)};
  line.expect("=");
  buffer.temporary = line.accept("temporary");
  if (!buffer.temporary) line.expect("flat");
  line.expect("(");
  buffer.size = parse_integer(line, symbols);
  line.expect(")");
  line.expect(":");
  buffer.dtype = parse_dtype(line);
  if (line.accept("in")) {
    buffer.least = parse_integer(line, symbols);
    const size_t column = line.column();
    if (line.name("'to'") != "to") line.fail_at(column, "'to' is expected here");
    buffer.most = parse_integer(line, symbols);
  }
  line.expect_end();
  symbols.buffers[buffer.name] = {type_of(buffer.dtype), 1};
  function.buffers.push_back(std::move(buffer));
}

}  // namespace

Body parse_body(Source& source, int indent, Symbols symbols) {
  Body body;
  while (source.has_line(indent)) body.push_back(parse_stmt(source, indent, symbols));
  if (body.empty()) source.fail_after(fmt::format("a statement is expected, {} spaces deep", indent));
  return body;
}

Function parse_function(std::string_view text) {
  Source source(text);
  if (source.at_end()) source.fail_after("a function is expected, as in stage3 NAME(n):");
  Cursor head = source.next();
  head.expect("stage3");
  Function function{.name = head.new_name("function")};
  parse_parameters(head, function.scalars, function.reals);
  head.expect(":");
  head.expect_end();
  Symbols symbols;
  symbols.variables.insert(function.scalars.begin(), function.scalars.end());
  symbols.variables.insert(function.reals.begin(), function.reals.end());
  symbols.reals.insert(function.reals.begin(), function.reals.end());
  while (source.has_line(2)) {
    Cursor line = source.peek();
    if (!line.at_name()) break;
    if (line.accept("apart")) {
      source.next();
      function.apart.push_back(parse_apart(line));
      continue;
    }
    line.name("a name");
    if (!line.accept("=")) break;
    line = source.next();
    parse_buffer(line, function, symbols);
  }
  function.body = parse_body(source, 2, symbols);
  if (!source.at_end()) source.peek().fail("nothing may follow the function");
  return function;
}

}  // namespace weft::loop
