-- The check of keys for nginx: the form, SHA-256 by OpenSSL (which nginx is linked with), an LRU map before the records.
local ffi = require("ffi")
local lrucache = require("resty.lrucache")

ffi.cdef([[unsigned char *SHA256(const unsigned char *d, size_t n, unsigned char *md);]])

local digest = ffi.new("unsigned char[32]")
local held = lrucache.new(100000)

local function sha256(text)
  ffi.C.SHA256(text, #text, digest)
  return ffi.string(digest, 32)
end

local function deny(message)
  ngx.status = 401
  ngx.header["content-type"] = "application/json; charset=utf-8"
  ngx.header["cache-control"] = "no-store"
  local body = '{"success":false,"message":"' .. message .. '","data":null}'
  ngx.header["content-length"] = #body
  ngx.print(body)
  return ngx.exit(401)
end

local function fromHex(text)
  return (text:gsub("..", function(two) return string.char(tonumber(two, 16)) end))
end

local function open(file)
  local records = {}
  for line in io.lines(file) do
    local id, merchant = line:match("^(%x+) (%S+)$")
    records[fromHex(id)] = merchant
  end

  return function()
    local key = ngx.var.http_x_api_key
    if not key or key == "" then return deny("API Key is required") end
    if key:sub(1, 9) ~= "svc_live_" then return deny("Invalid API key format") end
    local id = sha256(key)
    local merchant = held:get(id)
    if not merchant then
      merchant = records[id]
      if not merchant then return deny("Invalid API Key") end
      held:set(id, merchant)
    end
    ngx.var.merchant = merchant
  end
end

return { open = open }
