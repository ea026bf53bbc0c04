#include "serve/prefix_cache.h"

#include <algorithm>
#include <unordered_map>

#include "base/check.h"

namespace weft::serve {
namespace {

struct LessPage {
  using is_transparent = void;
  template <class A, class B>
  bool operator()(const A& a, const B& b) const {
    return std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end());
  }
};

}  // namespace

struct PrefixCache::Node {
  std::string salt;  // of a root
  Node* parent = nullptr;
  std::vector<int32_t> tokens;  // whole pages; none in a root
  int64_t end = 0;              // tokens from the root to the end of this node
  std::vector<int32_t> pages;
  std::map<std::vector<int32_t>, std::unique_ptr<Node>, LessPage> children;  // by their first page
  int64_t locks = 0;                                                         // of this node and of those below it
  uint64_t last_use = 0, number = 0;
  FreeLeaves::node_type listing;  // preallocated set node: inserting this leaf into free_leaves_ cannot throw
};

// Where a walk along tokens ended: `node` is the last one that shares something, `tokens` all that is shared.
struct PrefixCache::Walk {
  Node* node;
  int64_t tokens;
};

bool PrefixCache::Older::operator()(const Node* a, const Node* b) const {
  return a->last_use != b->last_use ? a->last_use < b->last_use : a->number < b->number;
}

PrefixCache::PrefixCache(ModelRunner& model) : model_(model), page_size_(model.limits().page_size) {}

PrefixCache::~PrefixCache() {
  const auto release = [&](const auto& self, Node& node) -> void {
    for (auto& [page, child] : node.children) self(self, *child);
    model_.unhold(node.pages);
  };
  for (auto& [salt, root] : roots_) release(release, *root);
}

std::span<const int32_t> PrefixCache::first_page(const Node& node) const {
  return std::span(node.tokens).first(static_cast<size_t>(page_size_));
}

bool PrefixCache::is_free_leaf(const Node& node) const {
  return node.parent != nullptr && node.children.empty() && node.locks == 0;
}

std::unique_ptr<PrefixCache::Node> PrefixCache::make_node() {
  auto node = std::make_unique<Node>();
  node->number = ++made_;
  FreeLeaves listing;
  listing.insert(node.get());
  node->listing = listing.extract(listing.begin());
  return node;
}

void PrefixCache::list(Node* node) { free_leaves_.insert(std::move(node->listing)); }
void PrefixCache::unlist(Node* node) { node->listing = free_leaves_.extract(node); }

void PrefixCache::touch(Node* node, uint64_t now) {
  const bool listed = is_free_leaf(*node);
  if (listed) unlist(node);
  node->last_use = now;
  if (listed) list(node);
}

PrefixCache::Walk PrefixCache::walk(const std::string& salt, std::span<const int32_t> tokens, uint64_t now) {
  const auto root = roots_.find(salt);
  if (root == roots_.end()) return {nullptr, 0};
  Node* node = root->second.get();
  const auto page = static_cast<size_t>(page_size_);
  for (;;) {
    touch(node, now);
    const auto rest = tokens.subspan(static_cast<size_t>(node->end));
    if (rest.size() < page) return {node, node->end};
    const auto child = node->children.find(rest.first(page));
    if (child == node->children.end()) return {node, node->end};
    Node* next = child->second.get();
    const auto differ = std::mismatch(rest.begin(), rest.end(), next->tokens.begin(), next->tokens.end());
    const auto shared = static_cast<size_t>(differ.second - next->tokens.begin()) / page * page;
    if (shared < next->tokens.size()) {
      touch(next, now);
      return {next, node->end + static_cast<int64_t>(shared)};
    }
    node = next;
  }
}

PrefixCache::Match PrefixCache::match(const std::string& salt, std::span<const int32_t> tokens) {
  const Walk found = walk(salt, tokens, ++uses_);
  if (found.tokens == 0) return {};
  return {found.node, found.tokens};
}

PrefixCache::Match PrefixCache::shortened(Match match, int64_t tokens) const {
  if (tokens == 0) return {};
  while (match.node->parent != nullptr && match.node->parent->end >= tokens) match.node = match.node->parent;
  return {match.node, tokens};
}

ModelRunner::Sequence PrefixCache::begin(const Match& match) const {
  std::vector<const Node*> path;
  for (const Node* node = match.node; node != nullptr; node = node->parent) path.push_back(node);
  std::vector<int32_t> pages;
  for (size_t i = path.size(); i-- > 0;) pages.insert(pages.end(), path[i]->pages.begin(), path[i]->pages.end());
  pages.resize(static_cast<size_t>(match.tokens / page_size_));
  return model_.add(pages);
}

// The first `tokens` tokens of the path become a node of their own above the rest. Pages don't change hands.
PrefixCache::Node* PrefixCache::split(Node* node, int64_t tokens) {
  Node* parent = node->parent;
  const auto head_size = static_cast<int64_t>(node->tokens.size()) - (node->end - tokens);
  ensure(head_size > 0 && tokens < node->end, "a prefix is cut at {} tokens, where none of its nodes is", tokens);
  auto head = make_node();
  head->parent = parent;
  head->tokens.assign(node->tokens.begin(), node->tokens.begin() + head_size);
  head->pages.assign(node->pages.begin(), node->pages.begin() + head_size / page_size_);
  head->end = tokens;
  head->locks = node->locks;
  head->last_use = node->last_use;
  const auto rest_first = std::span(node->tokens).subspan(head->tokens.size(), static_cast<size_t>(page_size_));
  std::unique_ptr<Node>& rest = head->children[std::vector<int32_t>(rest_first.begin(), rest_first.end())];
  // From here on nothing throws.
  std::unique_ptr<Node>& place = parent->children.find(first_page(*node))->second;
  rest = std::move(place);
  rest->tokens.erase(rest->tokens.begin(), rest->tokens.begin() + head_size);
  rest->pages.erase(rest->pages.begin(), rest->pages.begin() + head_size / page_size_);
  rest->parent = head.get();
  place = std::move(head);
  return place.get();
}

std::span<const int32_t> PrefixCache::whole_pages(std::span<const int32_t> tokens) const {
  return tokens.first(tokens.size() - tokens.size() % static_cast<size_t>(page_size_));
}

// A leaf for the tokens behind those that a walk found.
PrefixCache::Node* PrefixCache::insert(const std::string& salt, Walk at, std::span<const int32_t> tokens,
                                       ModelRunner::Sequence sequence) {
  const auto rest = tokens.subspan(static_cast<size_t>(at.tokens));
  const auto pages = model_.pages(sequence).subspan(static_cast<size_t>(at.tokens / page_size_),
                                                    rest.size() / static_cast<size_t>(page_size_));
  auto node = make_node();
  node->tokens.assign(rest.begin(), rest.end());
  node->pages.assign(pages.begin(), pages.end());
  node->end = static_cast<int64_t>(tokens.size());
  node->last_use = uses_;
  if (at.node == nullptr) {
    auto root = make_node();
    root->salt = salt;
    at.node = roots_.emplace(salt, std::move(root)).first->second.get();
  }
  if (at.tokens < at.node->end) at.node = split(at.node, at.tokens);
  node->parent = at.node;
  std::vector<int32_t> first(rest.begin(), rest.begin() + page_size_);
  model_.hold(node->pages);
  const bool was_leaf = is_free_leaf(*at.node);
  Node* added = node.get();
  try {
    at.node->children.emplace(std::move(first), std::move(node));
  } catch (const std::bad_alloc&) {
    model_.unhold(pages);
    throw;
  }
  if (was_leaf) unlist(at.node);
  held_pages_ += static_cast<int64_t>(added->pages.size());
  list(added);
  return added;
}

PrefixCache::Match PrefixCache::extend(const std::string& salt, const Match& locked, std::span<const int32_t> tokens,
                                       ModelRunner::Sequence sequence) {
  tokens = whole_pages(tokens);
  if (static_cast<int64_t>(tokens.size()) <= locked.tokens) return locked;
  const Walk at = walk(salt, tokens, ++uses_);
  if (at.tokens != locked.tokens) return locked;
  Node* added = insert(salt, at, tokens, sequence);
  lock(added);
  unlock(locked.node);
  return {added, added->end};
}

void PrefixCache::keep(const std::string& salt, std::span<const int32_t> tokens, ModelRunner::Sequence sequence) {
  tokens = whole_pages(tokens);
  const Walk at = walk(salt, tokens, ++uses_);
  if (at.tokens < static_cast<int64_t>(tokens.size())) insert(salt, at, tokens, sequence);
}

PrefixCache::Match PrefixCache::lock(Match match) {
  if (match.node != nullptr && match.tokens < match.node->end) match.node = split(match.node, match.tokens);
  lock(match.node);
  return match;
}

void PrefixCache::lock(Node* node) {
  for (; node != nullptr; node = node->parent) {
    if (is_free_leaf(*node)) unlist(node);
    if (node->locks++ == 0) locked_pages_ += static_cast<int64_t>(node->pages.size());
  }
}

void PrefixCache::unlock(Node* node) {
  for (; node != nullptr; node = node->parent) {
    ensure(node->locks > 0, "a prefix is unlocked more often than locked");
    if (--node->locks == 0) locked_pages_ -= static_cast<int64_t>(node->pages.size());
    if (is_free_leaf(*node)) list(node);
  }
}

void PrefixCache::drop(Node* node) {
  Node* parent = node->parent;
  unlist(node);
  held_pages_ -= static_cast<int64_t>(node->pages.size());
  model_.unhold(node->pages);
  parent->children.erase(parent->children.find(first_page(*node)));
  if (is_free_leaf(*parent)) list(parent);
  if (parent->parent == nullptr && parent->children.empty()) roots_.erase(roots_.find(parent->salt));
}

void PrefixCache::trim(Node* node, int64_t pages) {
  const auto kept = node->pages.size() - static_cast<size_t>(pages);
  model_.unhold(std::span(node->pages).subspan(kept));
  node->pages.resize(kept);
  node->tokens.resize(kept * static_cast<size_t>(page_size_));
  node->end -= pages * page_size_;
  held_pages_ -= pages;
}

int64_t PrefixCache::evict(int64_t wanted) {
  int64_t freed = 0;
  while (freed < wanted && !free_leaves_.empty()) {
    Node* oldest = *free_leaves_.begin();
    const int64_t take = std::min(wanted - freed, static_cast<int64_t>(oldest->pages.size()));
    if (take == static_cast<int64_t>(oldest->pages.size()))
      drop(oldest);
    else
      trim(oldest, take);
    freed += take;
  }
  return freed;
}

PrefixCache::Node* PrefixCache::within(Node* node, int64_t tokens) const {
  while (node != nullptr && node->end > tokens) node = node->parent;
  return node;
}

PrefixCache::Shared PrefixCache::shared_by(std::span<Node* const> pieces) const {
  Shared shared;
  std::unordered_map<const Node*, int32_t> ids;
  const auto id_of = [&](const auto& self, const Node* node) -> int32_t {
    if (node == nullptr || node->parent == nullptr) return -1;  // a root has no pages
    if (const auto known = ids.find(node); known != ids.end()) return known->second;
    const int32_t parent = self(self, node->parent);
    shared.parent.push_back(parent);
    shared.num_pages.push_back(static_cast<int32_t>(node->end / page_size_));
    return ids[node] = static_cast<int32_t>(shared.parent.size()) - 1;
  };
  for (const Node* node : pieces) shared.node_of_piece.push_back(id_of(id_of, node));
  return shared;
}

std::vector<CachedPrefix> PrefixCache::describe() const {
  std::vector<CachedPrefix> all;
  const auto add = [&](const auto& self, const Node& node, int depth) -> void {
    if (node.parent != nullptr)
      all.push_back({depth, static_cast<int64_t>(node.tokens.size()), static_cast<int>(node.locks)});
    for (const auto& [page, child] : node.children) self(self, *child, depth + 1);
  };
  for (const auto& [salt, root] : roots_) add(add, *root, -1);
  return all;
}

}  // namespace weft::serve
