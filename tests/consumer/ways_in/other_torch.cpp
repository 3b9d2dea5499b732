// Stands before torch and says that it is another one: 2.99.
#include <cstdint>

extern "C" uint64_t aoti_torch_abi_version() { return uint64_t{2} << 56 | uint64_t{99} << 48; }
