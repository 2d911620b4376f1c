{{/* Errors in the values of one environment's gateways. Takes root, environment and settings. Returns a JSON list. */}}
{{- define "merchant-gateway.gatewayProblems" -}}
{{- $problems := list -}}
{{- $settings := .settings -}}
{{- $config := include "merchant-gateway.gatewayConfig" . | fromJson -}}
{{- $proxies := dig "trustedProxies" list $config -}}
{{- $hasTls := include "merchant-gateway.hasTls" $settings -}}
{{- $service := $settings.service -}}
{{- if not (or $hasTls $proxies) -}}
{{- $problems = append $problems "no TLS and no trusted proxy: every request would be rejected. Set gateway.tls, or list the proxies that terminate TLS in config.trustedProxies" -}}
{{- end -}}
{{- if not (or $hasTls $settings.plainListener) -}}
{{- $problems = append $problems "no TLS and no plain listener: no client could connect. Set gateway.tls or gateway.plainListener" -}}
{{- end -}}
{{- if and (not $hasTls) (or .root.Values.secrets.tlsTicketKeys.existingSecret .root.Values.secrets.tlsClientCa.existingSecret) -}}
{{- $problems = append $problems "secrets.tlsTicketKeys and secrets.tlsClientCa have no effect without TLS in the gateway: set gateway.tls, or remove them" -}}
{{- end -}}
{{- if and $settings.tls.existingSecret $settings.tls.certManager.enabled -}}
{{- $problems = append $problems "gateway.tls.existingSecret and gateway.tls.certManager are both set: choose one certificate" -}}
{{- end -}}
{{- if and $settings.tls.certManager.enabled (not (and $settings.tls.certManager.dnsNames $settings.tls.certManager.issuerRef.name)) -}}
{{- $problems = append $problems "gateway.tls.certManager needs issuerRef.name and at least one of dnsNames" -}}
{{- end -}}
{{- with $settings.tls.certManager -}}
{{- $valid := include "merchant-gateway.secondsOf" .duration | atoi -}}
{{- $before := include "merchant-gateway.secondsOf" .renewBefore | atoi -}}
{{- if and .enabled (or (lt $valid 3600) (lt $before 300) (ge $before $valid)) -}}
{{- $problems = append $problems (printf "gateway.tls.certManager: renewBefore is %s and duration %s. cert-manager requires a duration of at least 1h, and renewBefore of at least 5m and below duration" .renewBefore .duration) -}}
{{- end -}}
{{- end -}}
{{- range $proxy := $proxies -}}
{{- /* As config check does: unique local addresses (fc00::/7) may be proxies, and ::ffff:0:0/96 is all of IPv4. */ -}}
{{- $range := toString $proxy | lower -}}
{{- $tooWide := ternary "/([0-9]|1[0-5])$|^::ffff:.*/(9[6-9]|10[0-3])$" "/[0-7]$" (contains ":" $range) -}}
{{- if and (regexMatch $tooWide $range) (not (regexMatch "^f[cd][0-9a-f]{2}:.*/([7-9]|1[0-5])$" $range)) -}}
{{- $problems = append $problems (printf "config.trustedProxies has %v: any client could then spoof its address. List only the addresses of the proxies" $proxy) -}}
{{- end -}}
{{- end -}}
{{- if and (dig "proxyProtocol" false $config) (not $proxies) -}}
{{- $problems = append $problems "config.proxyProtocol without config.trustedProxies: every connection would be closed. List the proxies there" -}}
{{- end -}}
{{- if dig "listen" "https" "http2" false $config -}}
{{- $problems = append $problems "config.listen.https.http2: the gateway speaks HTTP/1.1 only, because the HTTP/2 of Node drops header fields with invalid values. Remove the option; for HTTP/2 clients, put HAProxy, nginx or Caddy in front (docs/connections.md)" -}}
{{- end -}}
{{- if and (eq .environment "live") (not .root.Values.secrets.keyPepper.existingSecret) -}}
{{- $problems = append $problems "production without a pepper: anyone who reads Redis could verify guessed keys. Set secrets.keyPepper.existingSecret" -}}
{{- end -}}
{{- if not (or .root.Values.services.enabled (dig "upstreams" dict $config)) -}}
{{- $problems = append $problems "no services behind the gateway: list them in config.upstreams, or set services.enabled" -}}
{{- end -}}
{{- if and (dig "torExits" "enabled" true $config) (not (or .root.Values.torExits.existingConfigMap (dig "torExits" "sources" list $config))) -}}
{{- $problems = append $problems "no list of Tor exits: set torExits.existingConfigMap or config.torExits.sources, or set config.torExits.enabled to false" -}}
{{- end -}}
{{- $redis := dig "keyStore" "redis" dict $config -}}
{{- if eq (dig "keyStore" "kind" "redis" $config) "memory" -}}
{{- $problems = append $problems "config.keyStore.kind is memory: each pod would have separate merchants and keys. Set redis" -}}
{{- else if not (or (hasKey $redis "url") (hasKey $redis "sentinel") (hasKey $redis "cluster")) -}}
{{- $problems = append $problems "no Redis: set config.keyStore.redis.url, sentinel or cluster. The default is a Redis in the pod itself" -}}
{{- end -}}
{{- if or (hasKey (dig "keyStore" dict $settings.config) "kind") (hasKey (dig "keyStore" dict $settings.config) "redis") -}}
{{- $problems = append $problems "gateway.config.keyStore applies only to the gateways, so the registry would write to another store: set config.keyStore. Only keyStore.cache may differ" -}}
{{- end -}}
{{- if and .root.Values.services.enabled (hasKey $settings.config "identity") -}}
{{- $problems = append $problems "gateway.config.identity applies only to the gateways, so the services would reject their requests: set config.identity" -}}
{{- end -}}
{{- if and .root.Values.services.enabled (not (hasKey $config "routes")) (include "merchant-gateway.allRoutes" . | fromJsonArray) -}}
{{- $problems = append $problems "another environment overrides routes, so the services would not know the routes of this one: set config.routes" -}}
{{- end -}}
{{- if and $settings.autoscaling.enabled (not (kindIs "invalid" $settings.replicas)) -}}
{{- $problems = append $problems "gateway.autoscaling and gateway.replicas contradict each other: set gateway.replicas to null" -}}
{{- end -}}
{{- if and $settings.autoscaling.enabled (gt (int $settings.autoscaling.minReplicas) (int $settings.autoscaling.maxReplicas)) -}}
{{- $problems = append $problems "gateway.autoscaling.minReplicas is above maxReplicas" -}}
{{- end -}}
{{- if and $settings.autoscaling.enabled (not (or (dig "requests" "cpu" "" $settings.resources) (dig "limits" "cpu" "" $settings.resources))) -}}
{{- $problems = append $problems "gateway.autoscaling needs a CPU request: set gateway.resources.requests.cpu" -}}
{{- end -}}
{{- $least := include "merchant-gateway.leastReplicas" $settings | int -}}
{{- with include "merchant-gateway.budgetProblem" (dict "budget" $settings.podDisruptionBudget "replicas" $least "name" "gateway.podDisruptionBudget") -}}
{{- $problems = append $problems . -}}
{{- end -}}
{{- $log := dig "accessLog" "destination" "stdout" $config -}}
{{- if ne $log "stdout" -}}
{{- if not (include "merchant-gateway.outlivesPods" (dict "path" $log "settings" $settings)) -}}
{{- $problems = append $problems (printf "config.accessLog.destination is %s, which is lost with the pod or cannot be written: set stdout, or a file below one of gateway.extraVolumeMounts on a persistent volume (no emptyDir)" $log) -}}
{{- else if not (regexMatch "(^|[^$])[$][{]HOSTNAME[}]" $log) -}}
{{- $problems = append $problems (printf "config.accessLog.destination is one file for all pods, %s, so their lines would break each other's hash chain: add ${HOSTNAME}, the name of the pod, to the file name" $log) -}}
{{- end -}}
{{- end -}}
{{- $checkpoints := default dict (dig "accessLog" "checkpoints" dict $config) -}}
{{- $file := default "" (dig "file" "" $checkpoints) -}}
{{- if and $file (not (include "merchant-gateway.outlivesPods" (dict "path" $file "settings" $settings))) -}}
{{- $problems = append $problems (printf "config.accessLog.checkpoints.file is %s, which is lost with the pod or cannot be written: set a file below one of gateway.extraVolumeMounts on a persistent volume, or remove it, so that the registry stores the checkpoints" $file) -}}
{{- end -}}
{{- if and (hasKey (include "merchant-gateway.secretsOfPart" (dict "root" .root "part" "gateway") | fromJson) "instanceKey") (not $file) (not $checkpoints.https) (not $checkpoints.syslog) (not (include "merchant-gateway.isWitnessed" (dict "root" .root "checkpoints" $checkpoints))) -}}
{{- $problems = append $problems "secrets.instanceKey signs checkpoints, but nothing stores them: set secrets.recordSecret and secrets.witnessKey, so that the registry stores them, or set config.accessLog.checkpoints.file, https or syslog" -}}
{{- end -}}
{{- $problems = concat $problems (include "merchant-gateway.additionProblems" (dict "settings" $settings "name" "gateway") | fromJsonArray) -}}
{{- $problems = concat $problems (include "merchant-gateway.hatchProblems" (dict "settings" $settings "name" "gateway" "graceSeconds" (include "merchant-gateway.gatewayGraceSeconds" .)) | fromJsonArray) -}}
{{- $problems = concat $problems (include "merchant-gateway.serviceProblems" (dict "settings" $settings) | fromJsonArray) -}}
{{- $problems = concat $problems (include "merchant-gateway.resourceProblems" (dict "resources" $settings.resources "name" "gateway.resources") | fromJsonArray) -}}
{{- if and (eq $service.type "ClusterIP") $service.externalTrafficPolicy -}}
{{- $problems = append $problems "gateway.service.externalTrafficPolicy has no effect on a ClusterIP: set it to null, or set another type" -}}
{{- end -}}
{{- if and (ne $service.type "LoadBalancer") (or $service.loadBalancerClass $service.loadBalancerSourceRanges) -}}
{{- $problems = append $problems "gateway.service.loadBalancerClass and loadBalancerSourceRanges need the type LoadBalancer: set gateway.service.type, or remove them" -}}
{{- end -}}
{{- if and $hasTls $settings.plainListener (eq (int $service.httpsPort) (int $service.httpPort)) -}}
{{- $problems = append $problems "gateway.service.httpsPort and httpPort are the same: choose two ports" -}}
{{- end -}}
{{- if and (eq (default "" $service.externalTrafficPolicy) "Cluster") (not $proxies) -}}
{{- $problems = append $problems "gateway.service.externalTrafficPolicy Cluster replaces the address of every client with that of a node, so allowlists and the Tor check would not work. Use Local, or a proxy in config.trustedProxies" -}}
{{- end -}}
{{- $isForIpv6 := or (has "IPv6" $service.ipFamilies) (has $service.ipFamilyPolicy (list "PreferDualStack" "RequireDualStack")) -}}
{{- if and $isForIpv6 (not (contains ":" $settings.listenAddress)) -}}
{{- $problems = append $problems "gateway.service has an IPv6 address, but the gateway listens only on IPv4: set gateway.listenAddress to ::" -}}
{{- end -}}
{{- if and (eq (default "" $service.ipFamilyPolicy) "SingleStack") (gt (len $service.ipFamilies) 1) -}}
{{- $problems = append $problems "gateway.service.ipFamilyPolicy SingleStack allows only one of ipFamilies: remove one" -}}
{{- end -}}
{{- $endsInFront := or $settings.ingress.enabled (and $settings.route.enabled (eq $settings.route.kind "HTTPRoute")) -}}
{{- if and $endsInFront (not (and $proxies $settings.plainListener)) -}}
{{- $problems = append $problems "an Ingress or HTTPRoute terminates TLS before the gateway: list its proxies in config.trustedProxies, and keep gateway.plainListener" -}}
{{- end -}}
{{- if and $settings.route.enabled (eq $settings.route.kind "TLSRoute") (not $hasTls) -}}
{{- $problems = append $problems "a TLSRoute passes TLS through: set gateway.tls" -}}
{{- end -}}
{{- if and $settings.route.enabled (not (and $settings.route.parentRefs $settings.route.hostnames)) -}}
{{- $problems = append $problems "gateway.route needs parentRefs and hostnames" -}}
{{- end -}}
{{- if and $settings.ingress.enabled (not $settings.ingress.hosts) -}}
{{- $problems = append $problems "gateway.ingress needs hosts" -}}
{{- end -}}
{{- $problems | toJson -}}
{{- end -}}

{{/* Errors for hosts that both environments use in the same Ingress class or Gateway. Takes live and test (their settings). Returns a JSON list. */}}
{{- define "merchant-gateway.sharedHostProblems" -}}
{{- $problems := list -}}
{{- $test := .test -}}
{{- if and .live.ingress.enabled $test.ingress.enabled (eq .live.ingress.className $test.ingress.className) -}}
{{- range .live.ingress.hosts -}}
{{- if has . $test.ingress.hosts -}}
{{- $problems = append $problems (printf "live and test have the same Ingress host, %s: requests could reach the wrong environment. Set environments.….gateway.ingress.hosts" .) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and .live.route.enabled $test.route.enabled (eq (toJson .live.route.parentRefs) (toJson $test.route.parentRefs)) -}}
{{- range .live.route.hostnames -}}
{{- if has . $test.route.hostnames -}}
{{- $problems = append $problems (printf "live and test have the same route's hostname, %s: requests could reach the wrong environment. Set environments.….gateway.route.hostnames" .) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $problems | toJson -}}
{{- end -}}

{{/* The error if a PodDisruptionBudget would block node drains forever or would protect nothing; otherwise empty. Takes budget, replicas and name. */}}
{{- define "merchant-gateway.budgetProblem" -}}
{{- with .budget -}}
{{- if .enabled -}}
{{- $both := and (not (kindIs "invalid" .minAvailable)) (not (kindIs "invalid" .maxUnavailable)) -}}
{{- $neither := and (kindIs "invalid" .minAvailable) (kindIs "invalid" .maxUnavailable) -}}
{{- $atLeast := include "merchant-gateway.podsOf" (dict "share" .minAvailable "replicas" $.replicas) | int -}}
{{- $atMost := include "merchant-gateway.podsOf" (dict "share" .maxUnavailable "replicas" $.replicas) | int -}}
{{- $away := ternary (sub $.replicas $atLeast) $atMost (kindIs "invalid" .maxUnavailable) | int -}}
{{- if or $both $neither -}}
{{- printf "%s needs exactly one of maxUnavailable and minAvailable: set the other one to null" $.name -}}
{{- else if and (kindIs "invalid" .maxUnavailable) (ge $atLeast (int $.replicas)) -}}
{{- printf "%s requires %d of %d pods at all times, so no node could be drained. Lower minAvailable" $.name $atLeast (int $.replicas) -}}
{{- else if and (kindIs "invalid" .minAvailable) (eq $atMost 0) -}}
{{- printf "%s allows no unavailable pod, so no node could be drained. Raise maxUnavailable" $.name -}}
{{- else if and (gt (int $.replicas) 1) (ge $away (int $.replicas)) -}}
{{- printf "%s allows %d of %d pods to be unavailable at once, so it protects nothing. Lower maxUnavailable, or raise minAvailable" $.name $away (int $.replicas) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* A number of pods, or a percentage of them, rounded up as Kubernetes does. Takes share and replicas. */}}
{{- define "merchant-gateway.podsOf" -}}
{{- if kindIs "string" .share -}}
{{- divf (mul (trimSuffix "%" .share | int) .replicas) 100 | ceil -}}
{{- else -}}
{{- int .share -}}
{{- end -}}
{{- end -}}

{{/* Errors in the values of a part with a database. Takes root and part. Returns a JSON list. */}}
{{- define "merchant-gateway.storedPartProblems" -}}
{{- $problems := list -}}
{{- $settings := index .root.Values .part -}}
{{- $problems = concat $problems (include "merchant-gateway.additionProblems" (dict "settings" $settings "name" .part) | fromJsonArray) -}}
{{- $problems = concat $problems (include "merchant-gateway.hatchProblems" (dict "settings" $settings "name" .part "graceSeconds" (include "merchant-gateway.storedGraceSeconds" .)) | fromJsonArray) -}}
{{- $problems = concat $problems (include "merchant-gateway.resourceProblems" (dict "resources" $settings.resources "name" (printf "%s.resources" .part)) | fromJsonArray) -}}
{{- if and (gt (int $settings.replicas) 1) (not (include "merchant-gateway.hasPostgres" .)) -}}
{{- $problems = append $problems (printf "%s.replicas is above 1 with SQLite, which only one process may write. Set secrets.%sDatabase.existingSecret" .part .part) -}}
{{- end -}}
{{- $migrations := .root.Values.migrations -}}
{{- $hasOwner := ne $migrations.registryOwner.existingSecret "" -}}
{{- if and (eq .part "registry") (ne $hasOwner (ne $migrations.registryUser "")) -}}
{{- $problems = append $problems "migrations.registryOwner and migrations.registryUser must be set together: the owner of the tables grants rights to that user" -}}
{{- end -}}
{{- if and (eq .part "registry") $hasOwner (not (include "merchant-gateway.hasPostgres" .)) -}}
{{- $problems = append $problems "migrations.registryOwner has no effect without secrets.registryDatabase" -}}
{{- end -}}
{{- if gt (int $settings.replicas) 1 -}}
{{- with include "merchant-gateway.budgetProblem" (dict "budget" $settings.podDisruptionBudget "replicas" $settings.replicas "name" (printf "%s.podDisruptionBudget" .part)) -}}
{{- $problems = append $problems . -}}
{{- end -}}
{{- end -}}
{{- $problems | toJson -}}
{{- end -}}

{{/* The ranges of a cron schedule that end before they begin, which Kubernetes rejects. Returns a JSON list. */}}
{{- define "merchant-gateway.reversedRanges" -}}
{{- $reversed := list -}}
{{- $names := dict -}}
{{- range $number, $name := list "sun" "mon" "tue" "wed" "thu" "fri" "sat" -}}
{{- $_ := set $names $name $number -}}
{{- end -}}
{{- range $number, $name := list "jan" "feb" "mar" "apr" "may" "jun" "jul" "aug" "sep" "oct" "nov" "dec" -}}
{{- $_ := set $names $name $number -}}
{{- end -}}
{{- range $range := regexFindAll "[0-9A-Za-z]+-[0-9A-Za-z]+" . -1 -}}
{{- $ends := list -}}
{{- range splitList "-" $range -}}
{{- $ends = append $ends (int (get $names (lower .) | default (atoi .))) -}}
{{- end -}}
{{- if gt (first $ends) (last $ends) -}}
{{- $reversed = append $reversed $range -}}
{{- end -}}
{{- end -}}
{{- $reversed | toJson -}}
{{- end -}}

{{/* A duration such as 1h30m in seconds. */}}
{{- define "merchant-gateway.secondsOf" -}}
{{- $seconds := 0 -}}
{{- range regexFindAll "[0-9]+[hms]" . -1 -}}
{{- $seconds = add $seconds (mul (regexFind "[0-9]+" . | atoi) (get (dict "h" 3600 "m" 60 "s" 1) (regexFind "[hms]" .))) -}}
{{- end -}}
{{- $seconds -}}
{{- end -}}
