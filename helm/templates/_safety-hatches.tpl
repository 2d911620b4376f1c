{{/* Errors in the security contexts, containers and times of a part's values. Takes settings, name (such as gateway) and graceSeconds. Returns a JSON list. */}}
{{- define "merchant-gateway.hatchProblems" -}}
{{- $name := .name -}}
{{- $settings := .settings -}}
{{- $problems := list -}}
{{- $ofPod := include "merchant-gateway.podSecurityContext" $settings | fromJson -}}
{{- $ofContainer := include "merchant-gateway.securityContext" $settings | fromJson -}}
{{- $problems = concat $problems (include "merchant-gateway.rightsProblems" (dict "context" $ofPod "name" (printf "%s.podSecurityContext" $name)) | fromJsonArray) -}}
{{- $problems = concat $problems (include "merchant-gateway.rightsProblems" (dict "context" $ofContainer "name" (printf "%s.securityContext" $name)) | fromJsonArray) -}}
{{- if not (or (get $ofPod "runAsNonRoot") (get $ofContainer "runAsNonRoot")) -}}
{{- $problems = append $problems (printf "%s.podSecurityContext disables runAsNonRoot, so the process could run as root: do not override it" $name) -}}
{{- end -}}
{{- if not (get $ofContainer "readOnlyRootFilesystem") -}}
{{- $problems = append $problems (printf "%s.securityContext makes the root file system writable: instead, mount an emptyDir at the paths to write to, with %s.extraVolumes" $name $name) -}}
{{- end -}}
{{- if not (has "ALL" (default list (default dict (get $ofContainer "capabilities")).drop)) -}}
{{- $problems = append $problems (printf "%s.securityContext does not drop the default capabilities: set drop: [ALL]" $name) -}}
{{- end -}}
{{- if or (not (hasKey $ofContainer "allowPrivilegeEscalation")) (not (or (hasKey $ofPod "seccompProfile") (hasKey $ofContainer "seccompProfile"))) -}}
{{- $problems = append $problems (printf "%s.securityContext or podSecurityContext weakens allowPrivilegeEscalation or seccompProfile: do not override them" $name) -}}
{{- end -}}
{{- $names := list "gateway" "registry" "services" -}}
{{- range $list := list "initContainers" "extraContainers" -}}
{{- range get $settings $list -}}
{{- $container := printf "%s.%s %s" $name $list .name -}}
{{- if has .name $names -}}
{{- $problems = append $problems (printf "%s has the name of another container of the pod: choose another name" $container) -}}
{{- end -}}
{{- $names = append $names .name -}}
{{- $problems = concat $problems (include "merchant-gateway.rightsProblems" (dict "context" (default dict .securityContext) "name" $container) | fromJsonArray) -}}
{{- range default list .volumeMounts -}}
{{- if regexMatch "^(secret-.*|tls)$" .name -}}
{{- $problems = append $problems (printf "%s mounts %s, which contains secrets of merchant-gateway: mount a volume of your own with %s.extraVolumes" $container .name $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $grace := default $.graceSeconds $settings.terminationGracePeriodSeconds | int -}}
{{- if lt $grace (int $.graceSeconds) -}}
{{- $problems = append $problems (printf "%s.terminationGracePeriodSeconds is %d, but draining takes up to %d seconds, so requests would be cut off. Raise it, or lower config.limits.drainTimeoutSeconds" $name $grace (int $.graceSeconds)) -}}
{{- end -}}
{{- if and $settings.lifecycle.preStop (kindIs "invalid" $settings.terminationGracePeriodSeconds) -}}
{{- $problems = append $problems (printf "%s.lifecycle.preStop shortens the time for draining: set %s.terminationGracePeriodSeconds to %d plus the seconds that the hook takes" $name $name (int $.graceSeconds)) -}}
{{- end -}}
{{- if and (eq (default "" $settings.dnsPolicy) "None") (not $settings.dnsConfig.nameservers) -}}
{{- $problems = append $problems (printf "%s.dnsPolicy is None without dnsConfig.nameservers, so Kubernetes would reject the pod: set nameservers" $name) -}}
{{- end -}}
{{- $problems | toJson -}}
{{- end -}}

{{/* Errors for rights that no container of the chart may have. Takes context (the security context of a pod or container) and name. Returns a JSON list. */}}
{{- define "merchant-gateway.rightsProblems" -}}
{{- $problems := list -}}
{{- if and (hasKey .context "runAsUser") (eq (toString .context.runAsUser) "0") -}}
{{- $problems = append $problems (printf "%s runs as root (runAsUser 0): set another user" .name) -}}
{{- end -}}
{{- if eq (get .context "runAsNonRoot" | toString) "false" -}}
{{- $problems = append $problems (printf "%s allows to run as root (runAsNonRoot: false): remove it" .name) -}}
{{- end -}}
{{- if get .context "privileged" -}}
{{- $problems = append $problems (printf "%s is privileged, which means root on the node: remove privileged" .name) -}}
{{- end -}}
{{- if get .context "allowPrivilegeEscalation" -}}
{{- $problems = append $problems (printf "%s allows privilege escalation: remove allowPrivilegeEscalation" .name) -}}
{{- end -}}
{{- $added := without (default list (default dict (get .context "capabilities")).add) "NET_BIND_SERVICE" -}}
{{- if $added -}}
{{- $problems = append $problems (printf "%s adds the capability %s: only NET_BIND_SERVICE may be added" .name (first $added)) -}}
{{- end -}}
{{- range list "seccompProfile" "appArmorProfile" -}}
{{- if eq (default dict (get $.context .)).type "Unconfined" -}}
{{- $problems = append $problems (printf "%s disables %s (Unconfined): remove it" $.name .) -}}
{{- end -}}
{{- end -}}
{{- if or (eq (get .context "procMount" | toString) "Unmasked") (default dict (get .context "windowsOptions")).hostProcess -}}
{{- $problems = append $problems (printf "%s gets access to the node: remove procMount and hostProcess" .name) -}}
{{- end -}}
{{- $problems | toJson -}}
{{- end -}}

{{/* Errors in the Service and the rolling update of one environment's gateways. Takes settings. Returns a JSON list. */}}
{{- define "merchant-gateway.serviceProblems" -}}
{{- $problems := list -}}
{{- $service := .settings.service -}}
{{- $ports := compact (list $service.nodePorts.https $service.nodePorts.http $service.healthCheckNodePort) -}}
{{- if and (eq $service.type "ClusterIP") $ports -}}
{{- $problems = append $problems "gateway.service.nodePorts and healthCheckNodePort need the type NodePort or LoadBalancer: set gateway.service.type, or remove them" -}}
{{- end -}}
{{- if ne (len (uniq $ports)) (len $ports) -}}
{{- $problems = append $problems "gateway.service.nodePorts has the same port twice: choose two ports" -}}
{{- end -}}
{{- if and $service.healthCheckNodePort (or (ne $service.type "LoadBalancer") (eq (default "Local" $service.externalTrafficPolicy) "Cluster")) -}}
{{- $problems = append $problems "gateway.service.healthCheckNodePort needs type LoadBalancer with externalTrafficPolicy Local: set them, or remove it" -}}
{{- end -}}
{{- if and (ne $service.type "LoadBalancer") (or $service.loadBalancerIP (kindIs "bool" $service.allocateLoadBalancerNodePorts)) -}}
{{- $problems = append $problems "gateway.service.loadBalancerIP and allocateLoadBalancerNodePorts need the type LoadBalancer: set gateway.service.type, or remove them" -}}
{{- end -}}
{{- if and $service.externalIPs (eq $service.type "ClusterIP") -}}
{{- $problems = append $problems "gateway.service.externalIPs with type ClusterIP replaces the address of every client with that of a node, so allowlists and the Tor check would not work: set another type" -}}
{{- end -}}
{{- $rolling := .settings.rollingUpdate -}}
{{- if and (regexMatch "^0+%?$" (toString $rolling.maxUnavailable)) (regexMatch "^0+%?$" (toString $rolling.maxSurge)) -}}
{{- $problems = append $problems "gateway.rollingUpdate allows neither an unavailable nor an additional pod, so no roll-out could start. Raise maxSurge" -}}
{{- end -}}
{{- $problems | toJson -}}
{{- end -}}

{{/* Errors in extraObjects and in the settings of the ServiceMonitor. Takes root. Returns a JSON list. */}}
{{- define "merchant-gateway.objectProblems" -}}
{{- $problems := list -}}
{{- range $index, $object := .root.Values.extraObjects -}}
{{- $parsed := tpl (ternary $object (toYaml $object) (kindIs "string" $object)) $.root | fromYaml -}}
{{- if not (and (get $parsed "apiVersion") (get $parsed "kind") (dig "metadata" "name" "" $parsed)) -}}
{{- $problems = append $problems (printf "extraObjects: entry %d is not a Kubernetes object. It needs apiVersion, kind and metadata.name" $index) -}}
{{- else if eq $parsed.kind "Secret" -}}
{{- $problems = append $problems (printf "extraObjects has the Secret %s, but Helm stores and shows all values. Create the Secret with kubectl or an operator (ExternalSecret, SealedSecret)" $parsed.metadata.name) -}}
{{- end -}}
{{- end -}}
{{- if and .root.Release.IsInstall .root.Values.monitoring.serviceMonitor.enabled .root.Values.networkPolicy.enabled (not .root.Values.networkPolicy.monitoring) -}}
{{- $problems = append $problems "monitoring.serviceMonitor is enabled, but networkPolicy.monitoring lets no pod scrape metrics: add Prometheus there, as a peer such as { namespaceSelector: { matchLabels: { kubernetes.io/metadata.name: monitoring } } }" -}}
{{- end -}}
{{- $problems | toJson -}}
{{- end -}}
