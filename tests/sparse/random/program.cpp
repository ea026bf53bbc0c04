#include "tests/sparse/random/program.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "tests/sparse/random/number.h"

namespace weft::sparse::random {

std::string lower_case(std::string name) {
  for (char& c : name) c = static_cast<char>(std::tolower(c));
  return name;
}

int64_t AxisDef::num_positions() const {
  if (parent.empty()) return length;
  if (kind == AxisKind::sparse_fixed) return static_cast<int64_t>(rows.size()) * width;
  int64_t count = 0;
  for (const auto& row : rows) count += static_cast<int64_t>(row.size());
  return count;
}

int64_t AxisDef::first_below(int64_t parent_position) const {
  if (parent.empty()) return 0;
  if (kind == AxisKind::sparse_fixed) return parent_position * width;
  int64_t first = 0;
  for (int64_t p = 0; p < parent_position; ++p) first += static_cast<int64_t>(rows[static_cast<size_t>(p)].size());
  return first;
}

std::vector<int64_t> AxisDef::coordinates_below(int64_t parent_position) const {
  std::vector<int64_t> list;
  if (parent.empty()) {
    for (int64_t i = 0; i < length; ++i) list.push_back(i);
    return list;
  }
  list = rows[static_cast<size_t>(parent_position)];
  if (kind == AxisKind::sparse_fixed) list.resize(static_cast<size_t>(width), -1);
  return list;
}

namespace {

template <class List>
auto find_named(const List& list, const std::string& name) {
  return std::find_if(list.begin(), list.end(), [&](const auto& item) { return item.name == name; });
}

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

std::string to_text(const AxisDef& axis) {
  std::string text = fmt::format("  {} = ", axis.name);
  const std::string indptr = fmt::format(", indptr={}_indptr", lower_case(axis.name));
  const std::string indices = fmt::format(", indices={}_indices", lower_case(axis.name));
  switch (axis.kind) {
    case AxisKind::dense_fixed: return text + fmt::format("dense_fixed({})\n", axis.length_text);
    case AxisKind::dense_variable: text += "dense_variable"; break;
    case AxisKind::sparse_fixed: text += "sparse_fixed"; break;
    case AxisKind::sparse_variable: text += "sparse_variable"; break;
  }
  text += fmt::format("({}, {}, {}", axis.parent, axis.length_text, axis.count_text);
  return text + (axis.is_variable() ? indptr : "") + (axis.is_sparse() ? indices : "") +
         (axis.wide_index ? "): int64\n" : ")\n");
}

std::string to_text(const StoreDef& store) {
  return fmt::format("{} = {}\n", to_text(load(store.buffer, store.indices, 'i')), to_text(store.value));
}

// "iterate f(I, J) "SR" as (i, j)" of the axes from one to before another.
std::string head_of(const IterationDef& it, const std::string& name, size_t from, size_t to) {
  const auto part = [&](const std::vector<std::string>& list) {
    return joined({list.begin() + static_cast<std::ptrdiff_t>(from), list.begin() + static_cast<std::ptrdiff_t>(to)});
  };
  return fmt::format("iterate {}({}) \"{}\" as ({})", name, part(it.axes), it.kinds.substr(from, to - from),
                     part(it.iterators));
}

std::string to_text(const IterationDef& it) {
  const std::string indent(it.outer.empty() ? 2 : 4, ' ');
  std::string where;
  for (const Term& condition : it.where) where += (where.empty() ? " where " : ", ") + to_text(condition);
  std::string text = fmt::format("{}{}{}:\n", indent, head_of(it, it.name, it.num_shared, it.axes.size()), where);
  if (!it.init.empty()) text += indent + "  init:\n";
  for (const StoreDef& store : it.init) text += indent + "    " + to_text(store);
  for (const StoreDef& store : it.body) text += indent + "  " + to_text(store);
  return text;
}

}  // namespace

const AxisDef& ProgramDef::axis(const std::string& wanted) const { return *find_named(axes, wanted); }
const BufferDef* ProgramDef::find_buffer(const std::string& wanted) const {
  const auto found = find_named(buffers, wanted);
  return found == buffers.end() ? nullptr : &*found;
}
const BufferDef& ProgramDef::buffer(const std::string& wanted) const { return *find_buffer(wanted); }

std::vector<std::string> ProgramDef::chain_of(const std::string& wanted) const {
  std::vector<std::string> chain;
  for (std::string at = wanted; !at.empty(); at = axis(at).parent) chain.insert(chain.begin(), at);
  return chain;
}

namespace {

template <class T>
std::map<std::string, T> those_that_are(const std::map<std::string, T>& params, const std::set<std::string>& set,
                                        bool wanted) {
  std::map<std::string, T> some;
  for (const auto& [param, value] : params)
    if (set.contains(param) == wanted) some[param] = value;
  return some;
}

}  // namespace

std::map<std::string, int64_t> ProgramDef::params_that_are(bool is_set) const {
  return those_that_are(params, set, is_set);
}
std::map<std::string, double> ProgramDef::reals_that_are(bool is_set) const {
  return those_that_are(reals, set, is_set);
}

std::string to_text(const ProgramDef& program) {
  std::vector<std::string> params;
  for (const auto& [param, value] : program.params) params.push_back(param);
  for (const auto& [param, value] : program.reals) params.push_back(param + ": real");
  std::string text = fmt::format("program {}({}):\n", program.name, joined(params));
  for (const AxisDef& axis : program.axes) text += to_text(axis);
  for (const BufferDef& buffer : program.buffers)
    text += fmt::format("  {} = {}({}): {}\n", buffer.name, buffer.temporary ? "temporary" : "buffer",
                        joined(buffer.axes), buffer.dtype);
  std::string outer;  // of the iteration before
  for (const IterationDef& it : program.iterations) {
    if (!it.outer.empty() && it.outer != outer) text += fmt::format("  {}:\n", head_of(it, it.outer, 0, it.num_shared));
    outer = it.outer;
    text += to_text(it);
  }
  return text;
}

namespace {

// Calls with the coordinate of each axis; places that are not used have -1, where `padding` is asked for.
void walk(const ProgramDef& program, const std::vector<std::string>& axes, bool padding,
          const std::function<void(const std::vector<int64_t>& at)>& call) {
  std::map<std::string, int64_t> position;
  std::vector<int64_t> at;
  const std::function<void()> deeper = [&] {
    if (at.size() == axes.size()) return call(at);
    const AxisDef& axis = program.axis(axes[at.size()]);
    if (!axis.parent.empty() && !position.contains(axis.parent)) throw Unusable("init below a reduction");
    const int64_t above = axis.parent.empty() ? 0 : position.at(axis.parent);
    int64_t next = axis.first_below(above);
    for (const int64_t coordinate : axis.coordinates_below(above)) {
      position[axis.name] = next++;
      if (coordinate < 0 && !padding) continue;
      at.push_back(coordinate);
      deeper();
      at.pop_back();
    }
  };
  deeper();
}

// Values by coordinates.
class Dense {
 public:
  Dense(const ProgramDef& program, const BufferDef& buffer) {
    for (const double value : buffer.values) values.push_back(number(value));
    for (const std::string& axis : buffer.axes) lengths_.push_back(program.axis(axis).length);
    const auto places = places_of(program, buffer.axes);
    if (buffer.temporary) values.assign(places.size(), number(std::numeric_limits<double>::quiet_NaN()));
    size_t size = 1;
    for (const int64_t length : lengths_) size *= static_cast<size_t>(length);
    place_.assign(size, kAbsent);
    for (size_t p = 0; p < places.size(); ++p)
      if (const auto index = index_of(places[p]); index < place_.size()) place_[index] = p;
  }
  // Null: absent.
  Number* find(const std::vector<int64_t>& at) {
    const size_t index = index_of(at);
    return index >= place_.size() || place_[index] == kAbsent ? nullptr : &values[place_[index]];
  }
  std::vector<Number> values;  // in the order of storage

 private:
  static constexpr size_t kAbsent = SIZE_MAX;
  size_t index_of(const std::vector<int64_t>& at) const {
    size_t index = 0;
    for (size_t d = 0; d < at.size(); ++d) {
      if (at[d] < 0 || at[d] >= lengths_[d]) return kAbsent;
      index = index * static_cast<size_t>(lengths_[d]) + static_cast<size_t>(at[d]);
    }
    return index;
  }
  std::vector<int64_t> lengths_;
  std::vector<size_t> place_;  // by coordinates
};

class Evaluation {
 public:
  explicit Evaluation(const ProgramDef& program) : program_(program) {
    for (const BufferDef& buffer : program.buffers) memory_.emplace(buffer.name, Dense(program, buffer));
    meaning_.variable = [this](const std::string& variable) {
      if (const auto real = program_.reals.find(variable); real != program_.reals.end()) return real->second;
      const auto found = iterators_.find(variable);
      return static_cast<double>(found != iterators_.end() ? found->second : program_.params.at(variable));
    };
    meaning_.load = [this](const std::string& buffer, const std::vector<int64_t>& at) {
      const Number* found = memory_.at(buffer).find(at);
      return found == nullptr ? Number{} : *found;  // one that nobody has set is NaN, and unusable
    };
  }

  Results run() {
    for (const IterationDef& it : program_.iterations) {
      if (!it.init.empty()) run(it, true);
      run(it, false);
    }
    for (const BufferDef& buffer : program_.buffers)
      if (!buffer.temporary) results_.values[buffer.name] = memory_.at(buffer.name).values;
    return std::move(results_);
  }

 private:
  void run(const IterationDef& it, bool is_init) {
    std::vector<std::string> axes, iterators;
    for (size_t a = 0; a < it.axes.size(); ++a) {
      if (is_init && it.kinds[a] == 'R') continue;
      axes.push_back(it.axes[a]);
      iterators.push_back(it.iterators[a]);
    }
    iterators_.clear();
    std::map<const Term*, Failures::Division> divisions;
    meaning_.fails = [&](const Term& division) {
      Failures::Division& found = divisions[&division];
      found.iterators.clear();
      std::vector<int64_t> at;
      for (const std::string& name : names_in_order(division)) {
        const auto iterator = iterators_.find(name);
        if (iterator == iterators_.end()) continue;  // a parameter
        found.iterators.push_back(name);
        at.push_back(iterator->second);
      }
      found.at.insert(std::move(at));
    };
    std::vector<const Term*> where;  // init has no iterators of reductions
    for (const Term& condition : it.where) {
      bool known = true;
      for (const std::string& used : names_in(condition))
        known = known && (program_.params.contains(used) || program_.reals.contains(used) ||
                          std::find(iterators.begin(), iterators.end(), used) != iterators.end());
      if (known) where.push_back(&condition);
    }
    walk(program_, axes, false, [&](const std::vector<int64_t>& at) {
      for (size_t a = 0; a < at.size(); ++a) iterators_[iterators[a]] = at[a];
      for (const Term* condition : where)
        if (value_of(*condition, meaning_).value == 0) return;
      for (const StoreDef& store : is_init ? it.init : it.body) compute(it.name, store);
    });
    for (auto& [term, division] : divisions) results_.failures[it.name].divisions.push_back(std::move(division));
  }

  void compute(const std::string& iteration, const StoreDef& store) {
    std::vector<int64_t> at;
    for (const Term& index : store.indices) at.push_back(static_cast<int64_t>(value_of(index, meaning_).value));
    Number* target = memory_.at(store.buffer).find(at);
    if (target == nullptr) return fail_at(iteration, store.buffer, std::move(at));
    const Number value = value_of(store.value, meaning_);
    const BufferDef& buffer = program_.buffer(store.buffer);
    if (buffer.dtype == "int32" && std::fabs(value.value) > INT32_MAX) throw Unusable("more than int32 holds");
    *target = stored(value, buffer.dtype, buffers_in(store.value).contains(store.buffer));
  }

  void fail_at(const std::string& iteration, const std::string& buffer, std::vector<int64_t> at) {
    const std::vector<std::string>& axes = program_.buffer(buffer).axes;
    for (size_t d = 0; d < at.size(); ++d) at[d] = std::clamp<int64_t>(at[d], -1, program_.axis(axes[d]).length);
    const auto [least, is_new] = results_.failures[iteration].writes.emplace(buffer, at);
    if (!is_new) least->second = std::min(least->second, at);
  }

  const ProgramDef& program_;
  std::map<std::string, Dense> memory_ = {};
  std::map<std::string, int64_t> iterators_ = {};
  Meaning meaning_ = {};
  Results results_ = {};
};

}  // namespace

std::vector<std::vector<int64_t>> places_of(const ProgramDef& program, const std::vector<std::string>& axes) {
  std::vector<std::vector<int64_t>> places;
  walk(program, axes, true, [&](const std::vector<int64_t>& at) { places.push_back(at); });
  return places;
}

Results results_of(const ProgramDef& program) { return Evaluation(program).run(); }

}  // namespace weft::sparse::random
