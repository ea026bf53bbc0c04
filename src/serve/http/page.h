// The page at /, built in: chat, and a view inside.
#pragma once

#include "serve/http/exchange.h"

namespace weft::serve::http {

Response page();

}  // namespace weft::serve::http
