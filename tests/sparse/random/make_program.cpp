#include "tests/sparse/random/make_program.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace weft::sparse::random {
namespace {

class ProgramMaker {
 public:
  ProgramMaker(Random& random, const ProgramOptions& options) : random_(random), options_(options) {}

  ProgramDef make() {
    make_axes(random_, program_);
    make_params();
    const int64_t count = random_.pick({1, 1, 1, 2, 2, 2, 3, 3, 4});
    const int64_t nest = count > 1 && random_.chance(25) ? random_.below(count - 1) : count;  // it and the one behind
    for (int64_t i = 0; i < count; ++i) make_iteration(i + 1 == count, i == nest + 1);
    if (nest < count) put_together(static_cast<size_t>(nest));
    // Parameters that nothing is left of are not asked for.
    for (const auto& [param, value] : program_.params)
      if (random_.chance(65)) program_.set.insert(param);
    for (const auto& [param, value] : program_.reals)
      if (random_.chance(40)) program_.set.insert(param);
    return std::move(program_);
  }

 private:
  // Others than lengths.
  void make_params() {
    if (random_.chance(options_.may_fail ? 60 : 20)) program_.params["q"] = random_.pick({0, 0, 1, 2, 3});
    if (random_.chance(30)) program_.reals["alpha"] = random_.pick({0.5, -2.0, 1.5, 3.0, 0.1, -0.25});
    if (random_.chance(10)) program_.reals["beta"] = random_.pick({1.0, 0.0, -0.75, 1e-3});
  }

  // ---------------------------------------------------------------- iterations

  // `shares`: it begins with the axis of the one before.
  void make_iteration(bool is_last, bool shares) {
    it_ = {.name = fmt::format("{}{}", random_.pick({"f", "g", "h"}), program_.iterations.size())};
    if (random_.chance(18) && make_matrix_product()) return;
    if (random_.chance(20) && make_sparse_product()) return;
    if (!is_last && random_.chance(35)) return make_elements();
    const bool alike = !program_.iterations.empty() && random_.chance(40);  // loops that may become one
    choose_axes(shares || alike ? program_.iterations.back().axes[0] : "");
    if (shares) it_.iterators[0] = program_.iterations.back().iterators[0];
    // What is to be a product of matrices, and what has one reduction, is asked for by many primitives.
    const bool product = random_.chance(20) && it_.axes.size() >= 3;
    for (size_t a = 0; a < it_.axes.size(); ++a) it_.kinds += random_.chance(40) ? 'R' : 'S';
    if (shares) it_.kinds[0] = program_.iterations.back().kinds[0];
    if (alike && !product && random_.chance(60)) it_.kinds[0] = program_.iterations.back().kinds[0];
    if (product) make_product_kinds();
    if (it_.kinds.find('S') == it_.kinds.npos && random_.chance(90)) it_.kinds[0] = 'S';
    if (random_.chance(15)) it_.where.push_back(make_condition());
    const int64_t stores = random_.chance(15) ? 2 : 1;
    for (int64_t s = 0; s < stores; ++s) make_store(product, is_last);
    program_.iterations.push_back(std::move(it_));
  }

  // c[m, n] += a[m, k] * b[k, n] of dense matrices whose sizes are known: what tensorize takes. False where there are
  // no three axes for it.
  bool make_matrix_product() {
    std::vector<std::string> roots;
    for (const AxisDef& axis : program_.axes)
      if (axis.parent.empty() && axis.length > 1) roots.push_back(axis.name);
    if (roots.size() < 3) return false;
    random_.shuffle(roots);
    it_.axes = {roots[0], roots[1], roots[2]};
    for (const std::string& axis : it_.axes) {
      it_.iterators.push_back(lower_case(axis.ends_with("_") ? axis.substr(0, 1) + "x" : axis));
      if (const std::string& length = program_.axis(axis).length_text; program_.params.contains(length))
        program_.set.insert(length);
    }
    it_.kinds = "SSR";
    const Term a = matrix({0, 2}), b = matrix({2, 1});
    add_sum(matrix({0, 1}, "Y"), operation("*", {a, b}));
    return true;
  }

  // c[i, k] += a[i, j] * b[j, k], or o[i, j] += a[i, j] * (x[i, k] * y[j, k]): what formats are for.
  bool make_sparse_product() {
    const AxisDef* below = nullptr;
    for (const AxisDef& axis : program_.axes)
      if (!axis.parent.empty() && below == nullptr) below = &axis;
    if (below == nullptr || !program_.axis(below->parent).parent.empty()) return false;
    it_.axes = {below->parent, below->name, "K"};
    for (const std::string& axis : it_.axes) it_.iterators.push_back(lower_case(axis));
    const Term a = matrix({0, 1});
    const auto mirror = [&] {  // at the coordinates of the axis below
      std::vector<std::string> axes = {below->name + "_", "K"};
      return load(new_buffer(axes, "A"), {name(it_.iterators[1]), name(it_.iterators[2])}, 'r');
    };
    if (random_.chance(50)) {
      it_.kinds = "SRS";
      const Term b = mirror();
      add_sum(matrix({0, 2}, "Y"), operation("*", {a, b}));
    } else {
      it_.kinds = "SSR";
      const Term x = matrix({0, 2}), y = mirror();
      add_sum(matrix({0, 1}, "Y"), operation("*", {a, operation("*", {x, y})}));
    }
    return true;
  }

  std::string new_buffer(const std::vector<std::string>& axes, const char* stem) {
    BufferDef buffer{.name = fmt::format("{}{}", stem, program_.buffers.size()), .axes = axes};
    if (random_.chance(30)) buffer.dtype = make_dtype('r');
    const size_t size = places_of(program_, axes).size();
    for (size_t p = 0; p < size; ++p) buffer.values.push_back(static_cast<double>(random_.between(-4, 4)));
    program_.buffers.push_back(std::move(buffer));
    return program_.buffers.back().name;
  }

  // A new buffer on these axes of the iteration, at its iterators.
  Term matrix(const std::vector<size_t>& places, const char* stem = "A") {
    std::vector<std::string> axes;
    std::vector<Term> at;
    for (const size_t place : places) axes.push_back(it_.axes[place]), at.push_back(name(it_.iterators[place]));
    return load(new_buffer(axes, stem), at, 'r');
  }

  void add_sum(const Term& target, const Term& value) {
    if (random_.chance(85)) it_.init.push_back({target.name, target.operands, real_literal(0)});
    it_.body.push_back({target.name, target.operands, operation("+", {target, value})});
    program_.iterations.push_back(std::move(it_));
  }

  // A temporary buffer of an expression for each element, which others read.
  void make_elements() {
    choose_axes("");
    it_.kinds = std::string(it_.axes.size(), 'S');
    StoreDef store = make_target(false);
    program_.buffers.back().temporary = true;
    if (random_.chance(60)) program_.buffers.back().dtype = "fp32";  // that of what is computed: it rounds nothing
    written_ = store.buffer;
    const char type = program_.buffers.back().type();
    store.value = make_value(type);
    it_.body.push_back(std::move(store));
    program_.iterations.push_back(std::move(it_));
  }

  // Both are written within one that has their first axis.
  void put_together(size_t first) {
    IterationDef &a = program_.iterations[first], &b = program_.iterations[first + 1];
    const bool fits = a.axes.size() > 1 && b.axes.size() > 1 && a.axes[0] == b.axes[0] && a.kinds[0] == b.kinds[0] &&
                      a.iterators[0] == b.iterators[0];
    if (!fits) return;
    for (IterationDef* it : {&a, &b}) it->outer = "both", it->num_shared = 1;
  }

  // The first is `first`, if that is any.
  void choose_axes(const std::string& first) {
    std::vector<std::string> chain;
    std::vector<const AxisDef*> below, dense;
    for (const AxisDef& axis : program_.axes) (axis.parent.empty() ? dense : below).push_back(&axis);
    if (!below.empty() && random_.chance(85)) {
      chain = program_.chain_of(random_.chance(70) ? below.back()->name : random_.pick(below)->name);
      if (random_.chance(10)) chain.pop_back();
    }
    if (!first.empty() && (chain.empty() || chain[0] != first)) chain = {first};
    it_.axes = chain;
    const auto wanted = std::max<int64_t>(random_.pick({1, 2, 3, 3, 3, 4}), static_cast<int64_t>(chain.size()));
    for (int tries = 0; tries < 10 && static_cast<int64_t>(it_.axes.size()) < wanted; ++tries) {
      const std::string& extra = tries < 2 ? program_.axis("K").name : random_.pick(dense)->name;
      if (std::count(it_.axes.begin(), it_.axes.end(), extra) > 0) continue;
      // Anywhere, but for a root before what hangs on it.
      const auto end = static_cast<int64_t>(it_.axes.size());
      it_.axes.insert(it_.axes.begin() + (random_.chance(60) ? end : random_.between(first.empty() ? 0 : 1, end)),
                      extra);
    }
    const std::string suffix = random_.chance(30) ? std::to_string(program_.iterations.size()) : "";
    for (std::string axis : it_.axes) {
      if (axis.back() == '_') axis.back() = 'x';
      it_.iterators.push_back(lower_case(axis) + suffix);
    }
  }

  // c[m, n] += a[m, k] * b[k, n]: one reduction, which is not the first.
  void make_product_kinds() {
    it_.kinds = std::string(it_.axes.size(), 'S');
    it_.kinds[static_cast<size_t>(random_.between(1, static_cast<int64_t>(it_.axes.size()) - 1))] = 'R';
  }

  Term make_condition() {
    const Term i = name(random_.pick(it_.iterators));
    const std::vector<Term> conditions = {
        operation("<", {operation("+", {i, name(random_.pick(it_.iterators))}), literal(random_.between(1, 9))}),
        operation("!=", {i, literal(random_.below(4))}),
        operation("==", {operation("%", {i, literal(2)}), literal(0)}),
        operation(">=", {i, literal(1)}),
        operation("<", {literal(0), operation("-", {i, literal(2)})}),
        operation("<=", {make_index(4), literal(3)}),
    };
    return conditions[static_cast<size_t>(random_.below(int64_t(conditions.size())))];
  }

  // ---------------------------------------------------------------- what is written

  bool is_spatial(const std::string& axis) const {
    for (size_t a = 0; a < it_.axes.size(); ++a)
      if (it_.axes[a] == axis) return it_.kinds[a] == 'S';
    return false;
  }
  bool has_axis(const std::string& axis) const {
    return std::find(it_.axes.begin(), it_.axes.end(), axis) != it_.axes.end();
  }
  const std::string& iterator_of(const std::string& axis) const {
    return it_.iterators[static_cast<size_t>(std::find(it_.axes.begin(), it_.axes.end(), axis) - it_.axes.begin())];
  }

  // A new buffer, written at every spatial iterator.
  StoreDef make_target(bool is_last) {
    BufferDef buffer{.name = fmt::format("Y{}", program_.buffers.size())};
    std::vector<std::vector<std::pair<std::string, Term>>> parts;  // chains, with what stands at their axes
    std::vector<std::string> done;
    for (size_t a = it_.axes.size(); a-- > 0;) {
      const std::string& axis = it_.axes[a];
      if (!is_spatial(axis) || std::count(done.begin(), done.end(), axis) > 0) continue;
      const std::vector<std::string> chain = program_.chain_of(axis);
      const bool all = std::all_of(chain.begin(), chain.end(), [&](const auto& c) { return is_spatial(c); });
      if (all && (chain.size() == 1 || random_.chance(75))) {
        std::vector<std::pair<std::string, Term>> part;
        for (const std::string& c : chain) part.emplace_back(c, name(iterator_of(c)));
        done.insert(done.end(), chain.begin(), chain.end());
        parts.insert(parts.begin(), std::move(part));
      } else {
        parts.insert(parts.begin(), {{axis + "_", name(iterator_of(axis))}});
      }
    }
    for (auto part = parts.begin(); part != parts.end(); ++part)
      if (std::any_of(parts.begin(), part, [&](const auto& other) { return other[0].first == (*part)[0].first; }))
        throw Unusable("an axis may not stand twice in a buffer");
    if (random_.chance(20)) random_.shuffle(parts);
    if (parts.empty()) {
      const AxisDef& axis = random_.pick(program_.axes);
      if (axis.parent.empty() && axis.length > 0)
        parts.push_back({{axis.name, literal(random_.below(axis.length))}});
      else
        parts.push_back({{"K", literal(0)}});
    }
    StoreDef store{.buffer = buffer.name};
    for (const auto& part : parts)
      for (const auto& [axis, index] : part) {
        buffer.axes.push_back(axis);
        store.indices.push_back(index);
      }
    buffer.dtype = make_dtype(random_.chance(80) ? 'r' : 'i');
    buffer.temporary = !is_last && random_.chance(45);
    if (random_.chance(6)) permute(store);
    if (options_.may_fail && random_.chance(30)) {
      Term& index = random_.pick(store.indices);
      index = operation("+", {index, literal(random_.pick({-1, 1}))});
    }
    program_.buffers.push_back(std::move(buffer));
    return store;
  }

  // A spatial iterator that says where by way of a table: points may meet.
  void permute(StoreDef& store) {
    Term& index = random_.pick(store.indices);
    if (index.kind != Term::Kind::name) return;
    const auto at =
        static_cast<size_t>(std::find(it_.iterators.begin(), it_.iterators.end(), index.name) - it_.iterators.begin());
    const AxisDef& axis = program_.axis(it_.axes[at]);
    if (axis.parent.empty()) index = load(make_table(axis.name, axis.length), {index}, 'i');
  }

  // Numbers below `most`, one for each coordinate of a root.
  std::string make_table(const std::string& axis, int64_t most) {
    BufferDef table{.name = fmt::format("A{}", program_.buffers.size()), .axes = {axis}, .dtype = "int32"};
    for (int64_t i = 0; i < program_.axis(axis).length; ++i)
      table.values.push_back(static_cast<double>(most > 0 ? random_.below(most) : 0));
    program_.buffers.push_back(table);
    return table.name;
  }

  // Sums that are scattered: where they go is loaded at a reduction.
  StoreDef scattered_target() {
    StoreDef store = make_target(true);
    BufferDef& buffer = program_.buffers.back();
    for (size_t a = 0; a < it_.axes.size(); ++a) {
      const AxisDef& axis = program_.axis(it_.axes[a]);
      if (it_.kinds[a] != 'R' || !axis.parent.empty()) continue;
      for (const AxisDef& to : program_.axes) {
        if (!to.parent.empty() || std::count(buffer.axes.begin(), buffer.axes.end(), to.name) > 0) continue;
        buffer.axes.push_back(to.name);
        buffer.temporary = false;
        store.indices.push_back(load(make_table(axis.name, to.length), {name(it_.iterators[a])}, 'i'));
        return store;
      }
    }
    return store;
  }

  std::string make_dtype(char type) {
    if (type == 'i') return random_.chance(60) ? "int32" : "int64";
    return random_.pick({"fp32", "fp32", "fp32", "fp32", "fp32", "fp32", "fp32", "fp16", "fp16", "fp64", "bf16"});
  }

  // One that an iteration before wrote at all of these axes, written once more.
  StoreDef target_again() {
    std::vector<StoreDef> candidates;
    for (const IterationDef& other : program_.iterations)
      for (const StoreDef& store : other.body) {
        const BufferDef& buffer = program_.buffer(store.buffer);
        StoreDef again{.buffer = store.buffer};
        size_t spatial = 0;
        for (const std::string& axis : buffer.axes) {
          if (!is_spatial(axis)) break;
          again.indices.push_back(name(iterator_of(axis)));
          ++spatial;
        }
        const auto all = static_cast<size_t>(std::count(it_.kinds.begin(), it_.kinds.end(), 'S'));
        if (spatial == buffer.axes.size() && spatial == all) candidates.push_back(std::move(again));
      }
    return candidates.empty() ? StoreDef{} : random_.pick(candidates);
  }

  void make_store(bool product, bool is_last) {
    const bool reduces = it_.kinds.find('R') != it_.kinds.npos;
    StoreDef store = random_.chance(25) ? target_again() : StoreDef{};
    const bool is_new = store.buffer.empty();
    const bool scatters = is_new && reduces && random_.chance(12);
    if (scatters)
      store = scattered_target();
    else if (is_new)
      store = make_target(is_last);
    written_ = store.buffer;
    const char type = program_.buffer(store.buffer).type();
    const Term target = load(store.buffer, store.indices, type);
    const Term value = product && type == 'r' ? operation("*", {make_load('r'), make_load('r')}) : make_value(type);
    const Term number = value.type == type ? value : operation("real", {value});
    // A temporary begins with anything.
    const bool begins = is_new && program_.buffer(store.buffer).temporary;
    Term start = type == 'r' ? real_literal(0) : literal(0);
    bool has_init = false;
    const int64_t form = reduces ? random_.below(100) : 100 + random_.below(100);
    if (product || form < 52) {
      store.value = operation("+", {target, number});
      has_init = begins || random_.chance(80);
    } else if (form < 66) {
      const char* which = random_.pick({"max", "min"});
      store.value = operation(which, {target, number});
      start = type == 'r' ? real_literal(random_.pick({-9, 9})) : literal(random_.pick({-9, 9}));
      has_init = begins || random_.chance(80);
    } else if (form < 88) {  // the order of the updates matters
      store.value = make_update(target, number);
      has_init = begins || random_.chance(70);
    } else if (form < 100) {  // the last one stays
      store.value = value;
      has_init = begins;
    } else if (form < 165) {
      store.value = value;
    } else if (form < 175 && !begins) {
      store.value = operation("+", {target, number});
    } else {
      store.value = begins ? value : operation("+", {make_carried(target), number});
    }
    if (has_init && can_init() && !scatters) {
      if (!begins && random_.chance(15)) start = operation(random_.pick({"min", "max", "+"}), {target, start});
      it_.init.push_back({store.buffer, store.indices, start});
      if (random_.chance(12)) set_beside();
    }
    it_.body.push_back(std::move(store));
  }

  // One more buffer that init sets, or makes less, and that no statement of the body has to write.
  void set_beside() {
    StoreDef beside = target_again();
    const auto is_set = [&](const StoreDef& store) { return store.buffer == beside.buffer; };
    if (beside.buffer.empty() || beside.buffer == written_ || std::any_of(it_.init.begin(), it_.init.end(), is_set))
      return;
    const char type = program_.buffer(beside.buffer).type();
    const Term one = type == 'r' ? real_literal(1) : literal(1);
    beside.value = random_.chance(50) ? one : operation("-", {load(beside.buffer, beside.indices, type), one});
    it_.init.push_back(std::move(beside));
  }

  // No spatial axis hangs on a reduction.
  bool can_init() const {
    for (size_t a = 0; a < it_.axes.size(); ++a)
      if (const std::string& parent = program_.axis(it_.axes[a]).parent;
          it_.kinds[a] == 'S' && !parent.empty() && !is_spatial(parent))
        return false;
    return true;
  }

  Term make_update(const Term& target, const Term& value) {
    const Term two = target.type == 'r' ? real_literal(2) : literal(2);
    switch (random_.below(4)) {
      case 0: return operation("-", {value, target});
      case 1: return operation("-", {operation("*", {target, two}), value});
      case 2: return operation("select", {operation("<", {target, value}), value, operation("-", {target, two})});
      default: return operation("-", {value, operation("*", {two, target})});
    }
  }

  // The buffer that is written, at another point of the loops: one that was computed before, or will be.
  Term make_carried(const Term& target) {
    Term carried = target;
    for (Term& index : carried.operands)
      if (random_.chance(60)) index = operation(random_.pick({"-", "+"}), {index, literal(1)});
    return carried;
  }

  // ---------------------------------------------------------------- what is read

  Term make_value(char type) {
    const int depth = static_cast<int>(random_.pick({0, 1, 1, 1, 2, 2, 3}));
    if (type == 'r' && random_.chance(12)) return make_value('i');  // integers become reals
    return make_term(random_, type, depth, [this](char leaf) { return make_leaf(leaf); });
  }

  Term make_leaf(char type) {
    if (options_.may_fail && random_.chance(30)) {
      const Term division = make_division();
      return type == 'r' ? operation("real", {division}) : division;
    }
    const int64_t choice = random_.below(100);
    if (type == 'r' && choice < 15 && !program_.reals.empty()) return name(any_of(program_.reals), 'r');
    if (type == 'r') return choice < 80 ? make_load('r') : make_real_literal();
    if (choice < 35) return name(random_.pick(it_.iterators));
    if (choice < 65) return make_load('i');
    if (choice < 75 && !program_.params.empty()) return name(any_of(program_.params));
    return literal(random_.between(-9, 9));
  }

  template <class T>
  const std::string& any_of(const std::map<std::string, T>& params) {
    return std::next(params.begin(), random_.below(static_cast<int64_t>(params.size())))->first;
  }

  Term make_real_literal() {
    if (random_.chance(80)) return real_literal(static_cast<double>(random_.between(-3, 3)));
    return real_literal(random_.pick({0.5, -0.25, 0.1, 1.5}));
  }

  // Divided by one that may be 0.
  Term by_parameter(const Term& x) { return operation(random_.pick({"//", "%"}), {x, name(any_of(program_.params))}); }

  // By a loaded number, which is 0 or below at some of the points.
  Term make_division() {
    const Term x = random_.chance(60) ? make_load('i') : name(random_.pick(it_.iterators));
    const Term y = make_load('i');
    return operation(random_.pick({"//", "%"}), {x, y});
  }

  // Something of 0 to length - 1, mostly.
  Term make_index(int64_t length) {
    const Term i = name(random_.pick(it_.iterators));
    if (random_.chance(6) && !program_.params.empty()) return by_parameter(i);
    switch (random_.below(8)) {
      case 0: return literal(random_.below(std::max<int64_t>(length, 1)));
      case 1: return operation("-", {i, literal(1)});
      case 2: return operation("+", {i, literal(1)});
      case 3: return operation("//", {i, literal(2)});
      case 4: return operation("%", {i, literal(std::max<int64_t>(length, 1))});
      case 5: return operation("-", {literal(length), operation("+", {i, literal(1)})});
      case 6: return make_load('i', true);
      default: return i;
    }
  }

  Term make_load(char type, bool flat = false) {
    std::vector<const BufferDef*> known;
    for (const BufferDef& buffer : program_.buffers)
      if (buffer.type() == type && (!flat || buffer.axes.size() == 1) && buffer.name != written_)
        known.push_back(&buffer);
    // What was written last is likely to be read.
    if (!known.empty() && random_.chance(65))
      return load_of(*(random_.chance(60) ? known.back() : random_.pick(known)));
    return load_of(make_input(type, flat));
  }

  Term load_of(BufferDef buffer) {  // a copy: indices may make others
    std::vector<Term> indices;
    bool own = true;  // of the chain so far
    for (const std::string& axis : buffer.axes) {
      const AxisDef& def = program_.axis(axis);
      own = (own || def.parent.empty()) && has_axis(axis);
      if (own && random_.chance(92)) {
        const Term i = name(iterator_of(axis));
        const bool divides = options_.may_fail && !program_.params.empty() && random_.chance(20);
        indices.push_back(divides ? by_parameter(i) : i);
        own = !divides;
        continue;
      }
      own = false;
      indices.push_back(foreign_index(def));
    }
    return load(buffer.name, std::move(indices), buffer.type());
  }

  // An iterator of the same coordinates, or anything.
  Term foreign_index(const AxisDef& axis) {
    std::vector<std::string> same;
    for (size_t a = 0; a < it_.axes.size(); ++a)
      if (const AxisDef& other = program_.axis(it_.axes[a]); other.length_text == axis.length_text)
        same.push_back(it_.iterators[a]);
    if (!same.empty() && random_.chance(85)) return name(random_.pick(same));
    if (++nesting_ > 2) {
      --nesting_;
      return literal(0);
    }
    Term index = make_index(axis.length);
    --nesting_;
    return index;
  }

  const BufferDef& make_input(char type, bool flat) {
    BufferDef buffer{.name = fmt::format("A{}", program_.buffers.size()), .dtype = make_dtype(type)};
    const auto add_chain = [&](const std::string& axis) {
      for (const std::string& c : program_.chain_of(axis))
        if (std::count(buffer.axes.begin(), buffer.axes.end(), c) > 0) return;
      const std::vector<std::string> chain = program_.chain_of(axis);
      buffer.axes.insert(buffer.axes.end(), chain.begin(), chain.end());
    };
    const int64_t count = flat ? 1 : random_.pick({1, 2, 2});
    for (int64_t i = 0; i < count; ++i) {
      const std::string& axis = random_.pick(it_.axes);
      const bool is_root = program_.axis(axis).parent.empty();
      if (is_root)
        add_chain(axis);
      else if (flat || random_.chance(40))
        add_chain(axis + "_");
      else
        add_chain(axis);
    }
    const size_t size = places_of(program_, buffer.axes).size();
    const int64_t least = type == 'i' && random_.chance(60) ? 0 : -4;
    for (size_t p = 0; p < size; ++p) buffer.values.push_back(static_cast<double>(random_.between(least, 4)));
    program_.buffers.push_back(std::move(buffer));
    return program_.buffers.back();
  }

  Random& random_;
  const ProgramOptions options_;
  ProgramDef program_;
  IterationDef it_;
  std::string written_;
  int nesting_ = 0;
};

// Buffers that are written begin with something, too.
void fill_outputs(ProgramDef& program, Random& random) {
  for (BufferDef& buffer : program.buffers)
    if (!buffer.temporary && buffer.values.empty()) buffer.values.resize(places_of(program, buffer.axes).size());
  for (BufferDef& buffer : program.buffers)
    if (buffer.name[0] == 'Y')
      for (double& value : buffer.values) value = static_cast<double>(random.between(-4, 4));
}

// Temporary buffers of which nothing is read are left to the caller: he sees what they hold.
void show_unread(ProgramDef& program) {
  for (BufferDef& buffer : program.buffers) {
    bool is_read = false;
    for (const IterationDef& it : program.iterations)
      for (const StoreDef& store : it.body)
        is_read |= store.buffer != buffer.name && buffers_in(store.value).contains(buffer.name);
    buffer.temporary = buffer.temporary && is_read;
  }
}

}  // namespace

ProgramDef make_program(Random& random, const ProgramOptions& options) {
  for (;;) {
    try {
      ProgramDef program = ProgramMaker(random, options).make();
      show_unread(program);
      fill_outputs(program, random);
      if (!results_of(program).failures.empty() && !options.may_fail) continue;
      return program;
    } catch (const Unusable&) {
    }
  }
}

}  // namespace weft::sparse::random
