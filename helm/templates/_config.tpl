{{/* One option as nested groups. Takes option (a list of names) and value. */}}
{{- define "merchant-gateway.nest" -}}
{{- $nested := .value -}}
{{- range $name := reverse .option -}}
{{- $nested = dict $name $nested -}}
{{- end -}}
{{- $nested | toJson -}}
{{- end -}}

{{/* The configuration of the gateways of one environment: config, overridden by gateway.config. Takes root and settings. */}}
{{- define "merchant-gateway.gatewayConfig" -}}
{{- mergeOverwrite (deepCopy .root.Values.config) (deepCopy .settings.config) | toJson -}}
{{- end -}}

{{/* Seconds that a gateway needs to stop: the drain delay, the drain, and 10 s to flush logs and close connections. Takes root and settings. */}}
{{- define "merchant-gateway.gatewayGraceSeconds" -}}
{{- $drainSeconds := int (dig "limits" "drainTimeoutSeconds" 30 (include "merchant-gateway.gatewayConfig" . | fromJson)) -}}
{{- add (int .settings.drainDelaySeconds) $drainSeconds 10 -}}
{{- end -}}

{{/* Seconds for which a starting gateway waits for its first receipt. Takes root and settings. */}}
{{- define "merchant-gateway.registerSeconds" -}}
{{- $checkpoints := default dict (dig "accessLog" "checkpoints" dict (include "merchant-gateway.gatewayConfig" . | fromJson)) -}}
{{- dig "registerSeconds" 2 (default dict $checkpoints.witness) -}}
{{- end -}}

{{/* Seconds that the registry or the services need to stop, including the preStop wait of 5 s. Takes root. */}}
{{- define "merchant-gateway.storedGraceSeconds" -}}
{{- add 5 (int (dig "limits" "drainTimeoutSeconds" 30 .root.Values.config)) 10 -}}
{{- end -}}

{{/* The configuration of the Tor exit CronJob: the Tor sources and trusted proxies of all environments. Takes root. */}}
{{- define "merchant-gateway.sharedConfig" -}}
{{- $root := .root -}}
{{- $config := include "merchant-gateway.gatewayConfig" (dict "root" $root "settings" $root.Values.gateway) | fromJson -}}
{{- $sources := dig "torExits" "sources" list $config -}}
{{- $proxies := dig "trustedProxies" list $config -}}
{{- range $environment := include "merchant-gateway.environments" $root | fromJsonArray -}}
{{- $settings := include "merchant-gateway.gatewayValues" (dict "root" $root "environment" $environment) | fromJson -}}
{{- $own := include "merchant-gateway.gatewayConfig" (dict "root" $root "settings" $settings) | fromJson -}}
{{- $sources = concat $sources (dig "torExits" "sources" list $own) -}}
{{- $proxies = concat $proxies (dig "trustedProxies" list $own) -}}
{{- end -}}
{{- mergeOverwrite $config (dict "torExits" (dict "sources" (uniq $sources)) "trustedProxies" (uniq $proxies)) | toJson -}}
{{- end -}}

{{/* The routes of the gateways of all environments. With them the services determine the upstream of a request. Takes root. Returns a JSON list. */}}
{{- define "merchant-gateway.allRoutes" -}}
{{- $root := .root -}}
{{- $environments := include "merchant-gateway.environments" $root | fromJsonArray -}}
{{- $routes := ternary list (dig "routes" list $root.Values.config) (gt (len $environments) 0) -}}
{{- range $environment := $environments -}}
{{- $settings := include "merchant-gateway.gatewayValues" (dict "root" $root "environment" $environment) | fromJson -}}
{{- $config := include "merchant-gateway.gatewayConfig" (dict "root" $root "settings" $settings) | fromJson -}}
{{- $routes = concat $routes (dig "routes" list $config) -}}
{{- end -}}
{{- uniq $routes | toJson -}}
{{- end -}}

{{/* The resources of the gateways' routes, for the permissions of new keys. Empty if all environments have the default routes. Takes root. Returns a JSON list. */}}
{{- define "merchant-gateway.resources" -}}
{{- $root := .root -}}
{{- $resources := list -}}
{{- if include "merchant-gateway.allRoutes" . | fromJsonArray -}}
{{- $environments := include "merchant-gateway.environments" $root | fromJsonArray -}}
{{- $configs := ternary list (list $root.Values.config) (gt (len $environments) 0) -}}
{{- range $environment := $environments -}}
{{- $settings := include "merchant-gateway.gatewayValues" (dict "root" $root "environment" $environment) | fromJson -}}
{{- $configs = append $configs (include "merchant-gateway.gatewayConfig" (dict "root" $root "settings" $settings) | fromJson) -}}
{{- end -}}
{{- range $config := $configs -}}
{{- range $route := dig "routes" list $config -}}
{{- $resources = append $resources $route.resource -}}
{{- else -}}
{{- $resources = concat $resources (list "customers" "payouts" "transactions" "wallets") -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- uniq $resources | sortAlpha | toJson -}}
{{- end -}}

{{/* The longest time in seconds for which a gateway uses stale records. Gateways of other releases have that of config. Takes root. */}}
{{- define "merchant-gateway.maxStaleSeconds" -}}
{{- $root := .root -}}
{{- $seconds := dig "keyStore" "cache" "maxStaleSeconds" 30 $root.Values.config -}}
{{- range $environment := include "merchant-gateway.environments" $root | fromJsonArray -}}
{{- $settings := include "merchant-gateway.gatewayValues" (dict "root" $root "environment" $environment) | fromJson -}}
{{- $config := include "merchant-gateway.gatewayConfig" (dict "root" $root "settings" $settings) | fromJson -}}
{{- $seconds = max $seconds (dig "keyStore" "cache" "maxStaleSeconds" 30 $config) -}}
{{- end -}}
{{- $seconds -}}
{{- end -}}

{{/* Whether the registry stores the checkpoints of a gateway: as set in the values, otherwise if the registry has its secrets for it. Takes root and checkpoints. */}}
{{- define "merchant-gateway.isWitnessed" -}}
{{- $registry := include "merchant-gateway.secretsOfPart" (dict "root" .root "part" "registry") | fromJson -}}
{{- if hasKey .checkpoints "witness" -}}
{{- if .checkpoints.witness -}}true{{- end -}}
{{- else if and .root.Values.registry.enabled (hasKey $registry "witnessKey") (hasKey $registry "recordSecret") -}}
true
{{- end -}}
{{- end -}}

{{/* The checkpoint options of a gateway: a unique name, and the registry as the witness if both have the record secret. */}}
{{- define "merchant-gateway.checkpoints" -}}
{{- $checkpoints := dict -}}
{{- $given := default dict (dig "accessLog" "checkpoints" dict (include "merchant-gateway.gatewayConfig" . | fromJson)) -}}
{{- $secrets := include "merchant-gateway.secretsOfPart" . | fromJson -}}
{{- if hasKey $secrets "instanceKey" -}}
  {{- $name := printf "%s/%s/%s" .root.Release.Namespace (include "merchant-gateway.fullname" .root) .environment -}}
  {{- $_ := set $checkpoints "name" (dig "name" $name $given) -}}
  {{- if and (not $given.witness) (include "merchant-gateway.isWitnessed" (dict "root" .root "checkpoints" $given)) -}}
    {{- $_ := set $checkpoints "witness" dict -}}
  {{- end -}}
{{- end -}}
{{- ternary (dict "accessLog" (dict "checkpoints" $checkpoints)) dict (not (empty $checkpoints)) | toJson -}}
{{- end -}}

{{/* The options that the chart itself sets. Takes root, part and, for gateways, environment and settings. */}}
{{- define "merchant-gateway.ownedConfig" -}}
{{- $owned := dict -}}
{{- $host := .root.Values.gateway.listenAddress -}}
{{- if eq .part "gateway" -}}
  {{- $config := include "merchant-gateway.gatewayConfig" . | fromJson -}}
  {{- $listen := dict "management" (dict "host" .settings.listenAddress "port" 9090) -}}
  {{- if include "merchant-gateway.hasTls" .settings -}}
    {{- $certificate := dict "certFile" "/etc/merchant-gateway/tls/tls.crt" "keyFile" "/etc/merchant-gateway/tls/tls.key" -}}
    {{- $_ := set $listen "https" (merge (dict "host" .settings.listenAddress "port" 8443) $certificate) -}}
  {{- end -}}
  {{- $_ := set $listen "http" (ternary (dict "host" .settings.listenAddress "port" 8080) nil .settings.plainListener) -}}
  {{- $owned = dict "environment" .environment "listen" $listen "limits" (dict "drainDelaySeconds" .settings.drainDelaySeconds) -}}
  {{- if .root.Values.torExits.existingConfigMap -}}
    {{- $urls := dig "torExits" "sources" list $config -}}
    {{- $file := printf "/etc/merchant-gateway/tor-exits/%s" .root.Values.torExits.key -}}
    {{- $_ := set $owned "torExits" (dict "sources" (prepend $urls $file)) -}}
  {{- end -}}
  {{- if and .root.Values.services.enabled (not (dig "upstreams" dict $config)) -}}
    {{- $url := printf "http://%s-services:%v" (include "merchant-gateway.fullname" .root) .root.Values.services.servicePort -}}
    {{- $upstream := dict "url" $url "readsBodies" true -}}
    {{- $_ := set $owned "upstreams" (dict "transactions" $upstream "payouts" $upstream "customers" $upstream) -}}
  {{- end -}}
  {{- /* Services of the former release and external services require this audience. The next release will omit it. */ -}}
  {{- if and .root.Values.secrets.identitySigningKey.existingSecret (not (hasKey (dig "identity" dict $config) "audience")) -}}
    {{- $_ := set $owned "identity" (dict "audience" "merchant-gateway") -}}
  {{- end -}}
{{- else if ne .part "tor-exits" -}}
  {{- $url := printf "sqlite:/var/lib/merchant-gateway/data/%s.db" .part -}}
  {{- if include "merchant-gateway.hasPostgres" . -}}
    {{- $url = "${MERCHANT_GATEWAY_DATABASE_URL}" -}}
  {{- end -}}
  {{- $port := ternary 9443 7080 (eq .part "registry") -}}
  {{- $owned = dict .part (dict "listen" (dict "host" $host "port" $port) "database" (dict "url" $url)) -}}
  {{- if and (eq .part "registry") (not .isMigration) -}}
    {{- $certificate := dict "certFile" "/etc/merchant-gateway/tls/tls.crt" "keyFile" "/etc/merchant-gateway/tls/tls.key" -}}
    {{- $hosts := concat (dig "registry" "hosts" list .root.Values.config) (include "merchant-gateway.registryHosts" .root | fromJsonArray) -}}
    {{- $owned = merge $owned (dict "registry" (dict "listen" $certificate "hosts" (uniq $hosts))) -}}
    {{- /* A gateway uses stale records for no longer than the registry waits after a loss. */ -}}
    {{- $staleSeconds := include "merchant-gateway.maxStaleSeconds" . | int -}}
    {{- $owned = merge $owned (dict "keyStore" (dict "cache" (dict "maxStaleSeconds" $staleSeconds))) -}}
    {{- if hasKey (dig "registry" dict .root.Values.config) "bootstrap" -}}
      {{- $bootstrap := ternary "on" "off" (not (empty (include "merchant-gateway.hasSharedToken" .root))) -}}
      {{- $owned = merge $owned (dict "registry" (dict "bootstrap" $bootstrap)) -}}
    {{- end -}}
    {{- if dig "registry" "console" nil .root.Values.config -}}
      {{- $console := dict "console" (dict "listen" (merge (dict "host" $host "port" 7443) $certificate)) -}}
      {{- $owned = merge $owned (dict "registry" $console) -}}
    {{- end -}}
  {{- end -}}
  {{- $environments := include "merchant-gateway.environments" .root | fromJsonArray -}}
  {{- if and (eq .part "services") $environments (not (dig "identity" "publicKeysUrl" nil .root.Values.config)) -}}
    {{- $management := printf "%s-%s-management" (include "merchant-gateway.fullname" .root) (first $environments) -}}
    {{- $url := printf "http://%s:9090/.well-known/jwks.json" $management -}}
    {{- $_ := set $owned "identity" (dict "publicKeysUrl" $url) -}}
  {{- end -}}
  {{- $routes := include "merchant-gateway.allRoutes" . | fromJsonArray -}}
  {{- if and (eq .part "services") $routes -}}
    {{- /* The services need only the name of an upstream. Its URL may contain variables that only the gateways' pods have. */ -}}
    {{- $upstreams := dict -}}
    {{- range $route := $routes -}}
      {{- $_ := set $upstreams $route.upstream (dict "url" (printf "http://127.0.0.1:%v" $port)) -}}
    {{- end -}}
    {{- $owned = merge $owned (dict "routes" $routes "upstreams" $upstreams) -}}
  {{- end -}}
  {{- $resources := include "merchant-gateway.resources" . | fromJsonArray -}}
  {{- if and (eq .part "registry") $resources -}}
    {{- /* The registry needs only the resource of a route. Routes of two environments may conflict, so each resource gets a separate path. */ -}}
    {{- $routes := list -}}
    {{- range $resource := $resources -}}
      {{- $routes = append $routes (dict "path" (printf "/%s" $resource) "upstream" "gateways" "resource" $resource) -}}
    {{- end -}}
    {{- $owned = merge $owned (dict "routes" $routes "upstreams" (dict "gateways" (dict "url" "http://127.0.0.1:9"))) -}}
  {{- end -}}
{{- end -}}
{{- if has .part (list "gateway" "tor-exits") -}}
  {{- /* A relative path would start at the directory of the configuration, which is read-only. */ -}}
  {{- $settings := ternary .settings .root.Values.gateway (eq .part "gateway") -}}
  {{- $config := include "merchant-gateway.gatewayConfig" (dict "root" .root "settings" $settings) | fromJson -}}
  {{- $snapshot := dig "torExits" "snapshotFile" "var/tor-exits.json" $config -}}
  {{- if not (hasPrefix "/" $snapshot) -}}
    {{- $owned = mergeOverwrite $owned (dict "torExits" (dict "snapshotFile" (printf "/var/lib/merchant-gateway/%s" $snapshot))) -}}
  {{- end -}}
{{- end -}}
{{- if eq .part "gateway" -}}
  {{- $owned = merge $owned (include "merchant-gateway.checkpoints" . | fromJson) -}}
{{- else if eq .part "registry" -}}
  {{- $witness := default dict (dig "registry" "witness" dict .root.Values.config) -}}
  {{- if hasKey (include "merchant-gateway.secretsOfPart" . | fromJson) "witnessKey" -}}
    {{- $name := printf "%s/%s/registry" .root.Release.Namespace (include "merchant-gateway.fullname" .root) -}}
    {{- $owned = merge $owned (dict "registry" (dict "witness" (dict "name" (dig "name" $name $witness)))) -}}
  {{- end -}}
{{- end -}}
{{- $root := .root -}}
{{- range $name, $secret := include "merchant-gateway.secretsOfPart" . | fromJson -}}
  {{- $file := printf "/etc/merchant-gateway/secrets/%s/%s" $name $secret.key -}}
  {{- $value := $file -}}
  {{- if eq $name "servicesTokenPublicKey" -}}
    {{- /* Further keys are those of a rotation. */ -}}
    {{- $value = prepend (dig "services" "operators" "registryKeys" list $root.Values.config) $file -}}
  {{- end -}}
  {{- $owned = mergeOverwrite $owned (include "merchant-gateway.nest" (dict "option" $secret.option "value" $value) | fromJson) -}}
{{- end -}}
{{- if and (eq .part "services") (not .isMigration) .root.Values.registry.enabled .root.Values.secrets.servicesTrailToken.existingSecret -}}
  {{- $url := printf "https://%s:%v" (include "merchant-gateway.registryHosts" .root | fromJsonArray | first) .root.Values.registry.servicePort -}}
  {{- $trail := dict "url" (dig "services" "operators" "trail" "url" $url .root.Values.config) -}}
  {{- $owned = mergeOverwrite $owned (dict "services" (dict "operators" (dict "trail" $trail))) -}}
{{- end -}}
{{- $owned | toJson -}}
{{- end -}}

{{/* The options that a part reads. A migration reads only its database option. */}}
{{- define "merchant-gateway.config" -}}
{{- $config := deepCopy .root.Values.config -}}
{{- if .isMigration -}}
{{- $config = dict -}}
{{- else if eq .part "gateway" -}}
{{- $config = omit (include "merchant-gateway.gatewayConfig" . | fromJson) "registry" "services" -}}
{{- else if eq .part "tor-exits" -}}
{{- $config = pick (include "merchant-gateway.sharedConfig" . | fromJson) "keyStore" "torExits" "trustedProxies" "log" -}}
{{- else -}}
{{- $config = pick $config (ternary "keyStore" "identity" (eq .part "registry")) "limits" "log" .part -}}
{{- end -}}
{{- mergeOverwrite $config (include "merchant-gateway.ownedConfig" . | fromJson) | toYaml -}}
{{- end -}}

{{/* A ConfigMap with this configuration. Takes the same, and name, component and annotations. */}}
{{- define "merchant-gateway.configMap" -}}
apiVersion: v1
kind: ConfigMap
metadata:
  {{- include "merchant-gateway.metadata" . | nindent 2 }}
data:
  gateway.yaml: |
    {{- include "merchant-gateway.config" . | nindent 4 }}
{{- end -}}
