#include "base/check.h"
#include "models/template/interpreter.h"
#include "models/template/parser.h"
#include "weft/model.h"

namespace weft {

struct ChatTemplate::Impl {
  jinja::Block block;
};

ChatTemplate::ChatTemplate(std::string_view source) : impl_(new Impl{jinja::parse(source)}) {}
ChatTemplate::~ChatTemplate() = default;
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;

ChatTemplate::Impl& ChatTemplate::impl() const { return held(impl_, "chat template", "ChatTemplate(source)"); }

std::string ChatTemplate::render(std::string_view context_json) const {
  try {
    return jinja::render(impl().block, jinja::object_from_json(context_json));
  } catch (const jinja::Failure& failure) {
    fail(ErrorCode::invalid_argument, "context_json: {}; give an object of messages and settings", failure.message);
  }
}

}  // namespace weft
