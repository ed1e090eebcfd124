// The dashboard: one HTML page with its styles and script inside; it asks nothing but the admin API of its
// own origin. Every text from the API is set as text, never as markup.
#pragma once

#include <string_view>

namespace kvring::router {

std::string_view DashboardPage();

}  // namespace kvring::router
