import { Certificate } from '@kubernetes-models/cert-manager/cert-manager.io/v1/Certificate';
import { HTTPRoute } from '@kubernetes-models/gateway-api/gateway.networking.k8s.io/v1/HTTPRoute';
import { TLSRoute } from '@kubernetes-models/gateway-api/gateway.networking.k8s.io/v1alpha2/TLSRoute';
import { PrometheusRule } from '@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1/PrometheusRule';
import { ServiceMonitor } from '@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1/ServiceMonitor';
import { Deployment } from 'kubernetes-models/apps/v1/Deployment';
import { HorizontalPodAutoscaler } from 'kubernetes-models/autoscaling/v2/HorizontalPodAutoscaler';
import { CronJob } from 'kubernetes-models/batch/v1/CronJob';
import { Job } from 'kubernetes-models/batch/v1/Job';
import { Ingress } from 'kubernetes-models/networking.k8s.io/v1/Ingress';
import { NetworkPolicy } from 'kubernetes-models/networking.k8s.io/v1/NetworkPolicy';
import { PodDisruptionBudget } from 'kubernetes-models/policy/v1/PodDisruptionBudget';
import { ConfigMap } from 'kubernetes-models/v1/ConfigMap';
import { PersistentVolumeClaim } from 'kubernetes-models/v1/PersistentVolumeClaim';
import { Pod } from 'kubernetes-models/v1/Pod';
import { Service } from 'kubernetes-models/v1/Service';
import { ServiceAccount } from 'kubernetes-models/v1/ServiceAccount';

/** A kind of Kubernetes object: the class that validates values, and the module whose interface has every field. */
export interface Kind {
  readonly validate: (manifest: object) => void;
  readonly module: string;
}

interface Model {
  readonly apiVersion: string;
  readonly kind: string;
  new (data: never): { validate(): void };
}

function kindOf(model: Model, group: string): [string, Kind] {
  const validate = (manifest: object): void => {
    new model(manifest as never).validate();
  };
  return [`${model.apiVersion} ${model.kind}`, { validate, module: `${group}/${model.kind}` }];
}

/** The kinds in the chart, by API version and kind. */
export const kinds: ReadonlyMap<string, Kind> = new Map([
  ...[ConfigMap, PersistentVolumeClaim, Pod, Service, ServiceAccount].map((model) =>
    kindOf(model, 'kubernetes-models/v1'),
  ),
  kindOf(Deployment, 'kubernetes-models/apps/v1'),
  kindOf(HorizontalPodAutoscaler, 'kubernetes-models/autoscaling/v2'),
  kindOf(CronJob, 'kubernetes-models/batch/v1'),
  kindOf(Job, 'kubernetes-models/batch/v1'),
  kindOf(Ingress, 'kubernetes-models/networking.k8s.io/v1'),
  kindOf(NetworkPolicy, 'kubernetes-models/networking.k8s.io/v1'),
  kindOf(PodDisruptionBudget, 'kubernetes-models/policy/v1'),
  kindOf(Certificate, '@kubernetes-models/cert-manager/cert-manager.io/v1'),
  kindOf(HTTPRoute, '@kubernetes-models/gateway-api/gateway.networking.k8s.io/v1'),
  kindOf(TLSRoute, '@kubernetes-models/gateway-api/gateway.networking.k8s.io/v1alpha2'),
  kindOf(PrometheusRule, '@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1'),
  kindOf(ServiceMonitor, '@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1'),
]);
