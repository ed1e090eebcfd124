// clang-format off: the configuration must come first.
#include <boost/asio/impl/src.hpp>

#include "common/net/asio.h"
// clang-format on
