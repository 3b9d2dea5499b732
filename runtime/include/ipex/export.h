// Marks what the shared libraries export; everything else is hidden.
#pragma once

#define IPEX_API __attribute__((visibility("default")))
