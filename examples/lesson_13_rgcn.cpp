// Lesson 13: a relational graph network. Two RGCN layers (Schlichtkrull et al., 2017) over a graph whose edges have
// types:
//
//   h'[i] = relu(W_self h[i] + sum over relations r and edges (r, i, j) of h[j] W_r / c[i, r])
//
// c[i, r] counts the edges of relation r that end in i. The self loop is one more relation, so that a layer is one call
// of rgms. The result is held against the same layers in fp64, within what rounding to fp32 can do.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <random>
#include <set>
#include <tuple>
#include <vector>

#include "weft/sparse.h"

using namespace weft;
using namespace weft::sparse;

namespace {

// The edges of a layer: (relation, to, from), the self loops last, and 1 / c of each.
struct Edges {
  CooTensor list = {};
  std::vector<float> weights = {};
};

// A few relations have most of the edges, some nodes have none, as in graphs of facts.
Edges random_edges(int64_t nodes, int64_t relations, int count) {
  std::mt19937 random(13);
  std::set<std::tuple<int32_t, int32_t, int32_t>> edges;
  const auto below = [&](int64_t n) { return static_cast<int32_t>(random() % static_cast<unsigned>(n)); };
  while (static_cast<int>(edges.size()) < count) {
    const int32_t relation = below(1 + below(relations)), from = below(1 + below(nodes));
    edges.emplace(relation, below(nodes - 5), from);
  }
  Edges result{.list = {.extents = {relations + 1, nodes, nodes}, .coordinates = {{}, {}, {}}}};
  std::map<std::pair<int32_t, int32_t>, int> num_into;  // c
  const auto add = [&](int32_t relation, int32_t to, int32_t from) {
    result.list.coordinates[0].push_back(relation);
    result.list.coordinates[1].push_back(to);
    result.list.coordinates[2].push_back(from);
    ++num_into[{relation, to}];
  };
  for (const auto& [relation, to, from] : edges) add(relation, to, from);
  for (int32_t node = 0; node < nodes; ++node) add(static_cast<int32_t>(relations), node, node);
  for (size_t e = 0; e < result.list.coordinates[0].size(); ++e)
    result.weights.push_back(
        1.f / static_cast<float>(num_into[{result.list.coordinates[0][e], result.list.coordinates[1][e]}]));
  return result;
}

// Of one layer: a matrix [inputs, outputs] for each relation.
struct Weights {
  int64_t relations = 0, inputs = 0, outputs = 0;
  std::vector<float> values = {};
};

Weights random_weights(int64_t relations, int64_t inputs, int64_t outputs) {
  std::mt19937 random(static_cast<unsigned>(inputs));
  Weights weights{relations, inputs, outputs, std::vector<float>(static_cast<size_t>(relations * inputs * outputs))};
  const float bound = std::sqrt(6.f / static_cast<float>(inputs + outputs));
  for (float& w : weights.values) w = (static_cast<float>(random() >> 8) * 0x1p-23f - 1) * bound;
  return weights;
}

// A layer of Weft, before its relu. `ordered` are the weights of the edges in the structure's order.
std::vector<float> layer(const Structure& edges, const std::vector<float>& ordered, const std::vector<float>& h,
                         const Weights& w) {
  const int64_t nodes = static_cast<int64_t>(h.size()) / w.inputs;
  std::vector<float> result(static_cast<size_t>(nodes * w.outputs));
  rgms(edges, {ordered.data(), DType::fp32, {static_cast<int64_t>(ordered.size())}},
       {h.data(), DType::fp32, {nodes, w.inputs}}, {w.values.data(), DType::fp32, {w.relations, w.inputs, w.outputs}},
       {result.data(), DType::fp32, {nodes, w.outputs}});
  return result;
}

// The same in fp64, and by how much fp32 may be off: a rounding for each product and sum, and what the input is off.
struct Exact {
  std::vector<double> values = {}, bounds = {};
};

Exact exact_layer(const Edges& edges, const Exact& h, const Weights& w) {
  const auto inputs = static_cast<size_t>(w.inputs), outputs = static_cast<size_t>(w.outputs);
  const size_t nodes = h.values.size() / inputs;
  Exact result{std::vector<double>(nodes * outputs, 0), std::vector<double>(nodes * outputs, 0)};
  std::vector<double> magnitudes(nodes * outputs, 0), terms(nodes, 0);
  const auto& [relations, to, from] =
      std::tie(edges.list.coordinates[0], edges.list.coordinates[1], edges.list.coordinates[2]);
  for (size_t e = 0; e < relations.size(); ++e) {
    const auto r = static_cast<size_t>(relations[e]), i = static_cast<size_t>(to[e]), j = static_cast<size_t>(from[e]);
    const double weight = edges.weights[e];
    terms[i] += static_cast<double>(inputs) + 3;
    for (size_t l = 0; l < inputs; ++l)
      for (size_t k = 0; k < outputs; ++k) {
        const double factor = weight * double(w.values[(r * inputs + l) * outputs + k]);
        result.values[i * outputs + k] += factor * h.values[j * inputs + l];
        result.bounds[i * outputs + k] += std::fabs(factor) * h.bounds[j * inputs + l];
        magnitudes[i * outputs + k] +=
            std::fabs(factor) * (std::fabs(h.values[j * inputs + l]) + h.bounds[j * inputs + l]);
      }
  }
  for (size_t at = 0; at < magnitudes.size(); ++at) result.bounds[at] += 0x1p-24 * terms[at / outputs] * magnitudes[at];
  return result;
}

}  // namespace

int main() {
  constexpr int64_t kNodes = 300, kRelations = 6, kFeatures = 24, kHidden = 32, kClasses = 5;
  const Edges edges = random_edges(kNodes, kRelations, 2000);
  const Converted made = relational_from_coo(edges.list);
  std::vector<float> ordered;
  for (const int64_t e : made.order) ordered.push_back(edges.weights[static_cast<size_t>(e)]);

  const Weights first = random_weights(kRelations + 1, kFeatures, kHidden);
  const Weights second = random_weights(kRelations + 1, kHidden, kClasses);
  std::mt19937 random(1);
  std::vector<float> x(kNodes * kFeatures);
  for (float& v : x) v = static_cast<float>(random() >> 8) * 0x1p-23f - 1;

  std::vector<float> hidden = layer(made.structure, ordered, x, first);
  for (float& v : hidden) v = std::max(v, 0.f);
  const std::vector<float> scores = layer(made.structure, ordered, hidden, second);

  Exact want = exact_layer(edges, {{x.begin(), x.end()}, std::vector<double>(x.size(), 0)}, first);
  for (double& v : want.values) v = std::max(v, 0.);
  want = exact_layer(edges, want, second);

  double worst = 0, largest = 0;
  for (size_t at = 0; at < scores.size(); ++at) {
    worst = std::max(worst, std::fabs(double(scores[at]) - want.values[at]) / want.bounds[at]);
    largest = std::max(largest, std::fabs(want.values[at]));
  }
  std::printf(
      "%lld nodes, %lld relations and the self loop, %zu edges: scores up to %.2f, worst error %.3f of its bound\n",
      static_cast<long long>(kNodes), static_cast<long long>(kRelations), edges.weights.size(), largest, worst);
  return worst <= 1 && largest > 0.1 ? 0 : 1;
}
